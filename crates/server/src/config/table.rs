//! `settings!`: the table of settings. It generates the flags of `serve`, the keys of the file and
//! [`Config`](super::Config).
//!
//! A line of the table is `name("VALUE"): Flag => Field = default;`, or `... = default, in range;`.
//! A flag and a key of the file are parsed into `Flag` by its `FromStr` and converted to `Field` by
//! `From`. The documentation of the line is the help text of the flag and the rustdoc of both
//! fields.

/// Defines `Flags`, `Config`, `Config::defaults`, `Config::merge`, `Config::check_ranges`,
/// `Config::ranges` and `KEYS`.
macro_rules! settings {
    ($(
        $(#[$doc:meta])*
        $name:ident($value_name:literal): $flag:ty => $field:ty = $default:expr $(, in $range:expr)?;
    )*) => {
        /// Flags of `serve`. Each has a key of the same name in the configuration file, written
        /// with `_` or `-`.
        #[derive(Debug, Default, Args)]
        #[command(next_line_help = true)]
        pub struct Flags {
            $(
                $(#[$doc])*
                // The help text itself says what the values mean.
                #[arg(long, value_name = $value_name, hide_possible_values = true)]
                pub $name: Option<$flag>,
            )*
            /// TOML file with any of these settings. Flags take precedence [default: none]
            #[arg(long, value_name = "FILE")]
            pub config: Option<PathBuf>,
        }

        /// The configuration.
        #[derive(Clone, Debug, PartialEq)]
        pub struct Config {
            $(
                $(#[$doc])*
                pub $name: $field,
            )*
        }

        /// The keys of the configuration file, in table order.
        pub const KEYS: &[&str] = &[$(stringify!($name)),*];

        impl Config {
            fn defaults() -> Self {
                Self { $($name: $default,)* }
            }

            /// Takes each setting from the flags, else from the file, else from the defaults.
            fn merge(flags: Flags, mut file: File) -> Result<Self, String> {
                let mut config = Self::defaults();
                $(
                    let in_file = file.take::<$flag>(stringify!($name))?;
                    if let Some(value) = flags.$name.or(in_file) {
                        config.$name = value.into();
                    }
                )*
                file.check_unknown_keys()?;
                Ok(config)
            }

            fn check_ranges(&self) -> Result<(), String> {
                $($(
                    check_range::<$flag>(stringify!($name), self.$name.into(), $range)?;
                )?)*
                Ok(())
            }

            /// Returns the name and range of each setting that has one, as help texts write it.
            #[cfg(test)]
            fn ranges() -> Vec<(&'static str, String)> {
                let mut ranges = Vec::new();
                $($(
                    let [low, high] = [*$range.start(), *$range.end()].map(<$flag as Bound>::show);
                    ranges.push((stringify!($name), format!("{low} to {high}")));
                )?)*
                ranges
            }
        }
    };
}
pub(super) use settings;
