//! What the settings of all kinds of optimizers have in common.

/// A kind of optimizer: a struct of settings with defaults, and a method for each to choose another value.
macro_rules! settings {
    (
        $(#[$about:meta])*
        $kind:ident { lr = $lr:expr, $($(#[$doc:meta])* $name:ident: $type:ty = $value:expr,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $kind {
            /// The learning rate: how far a step goes.
            pub lr: f64,
            $($(#[$doc])* pub $name: $type,)*
        }

        impl Default for $kind {
            fn default() -> Self {
                Self { lr: $lr, $($name: $value,)* }
            }
        }

        impl $kind {
            /// With this learning rate, and defaults for the rest.
            pub fn new(lr: f64) -> Self {
                Self { lr, ..Self::default() }
            }

            $($(#[$doc])* pub fn $name(self, $name: $type) -> Self {
                Self { $name, ..self }
            })*
        }
    };
}
pub(super) use settings;

/// Refuses what is below zero, endless or no number.
pub(super) fn not_negative(name: &str, value: f64) -> Result<(), String> {
    if value >= 0.0 && value.is_finite() {
        return Ok(());
    }
    Err(format!("{name} must be 0 or more, it is {value}"))
}

/// Refuses what is not a share of something.
pub(super) fn share(name: &str, value: f64) -> Result<(), String> {
    if (0.0..=1.0).contains(&value) {
        return Ok(());
    }
    Err(format!("{name} must be between 0 and 1, it is {value}"))
}

/// Refuses averages that never take anything in, and those that are none.
pub(super) fn both_below_one(betas: [f64; 2]) -> Result<(), String> {
    if betas.iter().all(|beta| (0.0..1.0).contains(beta)) {
        return Ok(());
    }
    Err(format!(
        "betas must be 0 or more and below 1, they are {} and {}",
        betas[0], betas[1]
    ))
}
