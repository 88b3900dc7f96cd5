//! The instructions that acquire the engine's latches, and how long a thread spins for one:
//! measured at startup, or configured.
//!
//! Both are process-wide. The server sets them once, before it opens the engine, and keeps the
//! measurement for `clearway.latch_calibration`.

use clearway_latch::Choice;
use clearway_latch::calibrate::{self, Calibration};
use std::str::FromStr;

/// The largest configurable number of spins, about one millisecond.
pub(crate) const MAX_SPINS: u32 = 100_000;

/// How latches are acquired.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatchChoice {
    /// The fastest method measured on this machine.
    #[default]
    Auto,
    /// This method, which the processor supports.
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
                "this processor has no latch method \"{text}\": use {}, or auto",
                names.join(", ")
            )
        })
    }
}

/// How often a thread spins at a held latch before it yields or sleeps; doubled for latches that
/// are held briefly.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LatchSpins {
    /// As long as it takes to yield the core to another thread and get it back, as measured here,
    /// within bounds.
    #[default]
    Auto,
    /// This number of spins.
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

/// The settings in force and the measurement.
#[derive(Clone, Debug)]
pub(crate) struct Latches {
    /// The measurement and its recommendations.
    pub(crate) measured: Calibration,
    /// How latches are acquired.
    pub(crate) choice: Choice,
    /// Spins before a thread yields or sleeps.
    pub(crate) spin_limit: u32,
}

impl Latches {
    /// Measures the machine, which takes a few milliseconds, and applies the configured or measured
    /// settings.
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

    /// Describes the settings in force and the measurement in one line for the log.
    pub(crate) fn describe(&self) -> String {
        let Self { measured, choice, spin_limit } = self;
        if (*choice, *spin_limit) == (measured.choice, measured.spin_limit) {
            return measured.to_string();
        }
        let name = choice.name();
        format!(
            "latches configured to {name}, {spin_limit} spins before a thread yields or sleeps; measured: {measured}"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_latch_is_refused_with_the_known_names() {
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
    fn spins_are_bounded_or_auto() {
        assert_eq!("auto".parse(), Ok(LatchSpins::Auto));
        assert_eq!("0".parse(), Ok(LatchSpins::Fixed(0)));
        assert!("100001".parse::<LatchSpins>().is_err());
        assert!("-1".parse::<LatchSpins>().is_err());
    }

    #[test]
    fn configured_settings_override_measured_ones() {
        for choice in Choice::all() {
            let latches = Latches::set_up(LatchChoice::Fixed(choice), LatchSpins::Fixed(7));
            assert_eq!((latches.choice, latches.spin_limit), (choice, 7));
            assert!(
                latches.describe().starts_with("latches configured to "),
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
