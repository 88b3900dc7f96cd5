//! By which instructions the engine's latch is taken, and how long a thread spins for it: measured
//! at the start, or told.
//!
//! Both are settings of the process, of which the server makes use once, before it opens the
//! engine; what it measured is kept for `clearway.latch_calibration`.

use clearway_latch::Choice;
use clearway_latch::calibrate::{self, Calibration};
use std::str::FromStr;

/// The most spins that can be asked for: about a millisecond of them.
const MAX_SPINS: u32 = 100_000;

/// By which instructions latches are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatchChoice {
    /// By those that are measured to be the best here.
    #[default]
    Auto,
    /// By these, which this processor has.
    Fixed(Choice),
}

impl FromStr for LatchChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "auto" {
            return Ok(Self::Auto);
        }
        Choice::by_name(text).map(Self::Fixed).ok_or_else(|| {
            let names: Vec<&str> = Choice::all().into_iter().map(Choice::name).collect();
            format!(
                "this processor takes no latch by \"{text}\": it can by {}, or write auto",
                names.join(", ")
            )
        })
    }
}

/// How often a thread pauses at a held latch before it yields or sleeps; twice as often where
/// sections are short.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatchSpins {
    /// For about as long as it takes to give the core to another thread and have it back, as
    /// measured here.
    #[default]
    Auto,
    /// So often.
    Fixed(u32),
}

impl FromStr for LatchSpins {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.parse() {
            Ok(spins) if spins <= MAX_SPINS => Ok(Self::Fixed(spins)),
            _ if text == "auto" => Ok(Self::Auto),
            _ => Err(format!(
                "\"{text}\" is neither auto nor a number of spins from 0 to {MAX_SPINS}"
            )),
        }
    }
}

/// What is in force, and what was measured.
#[derive(Clone, Debug)]
pub(crate) struct Latches {
    /// What was measured, and what it speaks for.
    pub(crate) measured: Calibration,
    /// By what latches are taken.
    pub(crate) choice: Choice,
    /// Spins before a thread yields or sleeps.
    pub(crate) spin_limit: u32,
}

impl Latches {
    /// Measures the machine, which takes a few milliseconds, and puts into force what was measured,
    /// or told.
    pub(crate) fn set_up(choice: LatchChoice, spins: LatchSpins) -> Self {
        let measured = calibrate::calibrate();
        let choice = match choice {
            LatchChoice::Auto => measured.choice,
            LatchChoice::Fixed(choice) => choice,
        };
        let spin_limit = match spins {
            LatchSpins::Auto => measured.spin_limit,
            LatchSpins::Fixed(spins) => spins,
        };
        Calibration { choice, spin_limit, ..measured.clone() }.apply();
        Self { measured, choice, spin_limit }
    }

    /// What is in force, and what was measured, in a line for the log.
    pub(crate) fn describe(&self) -> String {
        let Self { measured, choice, spin_limit } = self;
        if (*choice, *spin_limit) == (measured.choice, measured.spin_limit) {
            return measured.to_string();
        }
        let name = choice.name();
        format!(
            "as configured, latches by {name}, {spin_limit} spins before a thread yields or sleeps; measured: {measured}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latch_that_the_processor_does_not_have_is_refused_with_those_that_it_has() {
        assert_eq!("auto".parse(), Ok(LatchChoice::Auto));
        for choice in Choice::all() {
            assert_eq!(choice.name().parse(), Ok(LatchChoice::Fixed(choice)));
        }
        let refused = "bakery".parse::<LatchChoice>().unwrap_err();
        assert!(
            refused.contains("\"bakery\"")
                && Choice::all().iter().all(|c| refused.contains(c.name())),
            "{refused}"
        );
    }

    #[test]
    fn spins_are_a_bounded_number_or_measured() {
        assert_eq!("auto".parse(), Ok(LatchSpins::Auto));
        assert_eq!("0".parse(), Ok(LatchSpins::Fixed(0)));
        assert!("100001".parse::<LatchSpins>().is_err());
        assert!("-1".parse::<LatchSpins>().is_err());
    }

    #[test]
    fn what_is_told_goes_before_what_is_measured() {
        for choice in Choice::all() {
            let latches = Latches::set_up(LatchChoice::Fixed(choice), LatchSpins::Fixed(7));
            assert_eq!((latches.choice, latches.spin_limit), (choice, 7));
            assert!(
                latches.describe().starts_with("as configured, latches by"),
                "{}",
                latches.describe()
            );
        }
        let latches = Latches::set_up(LatchChoice::Auto, LatchSpins::Auto);
        assert_eq!(
            (latches.choice, latches.spin_limit),
            (latches.measured.choice, latches.measured.spin_limit)
        );
        assert_eq!(latches.describe(), latches.measured.to_string());
    }
}
