//! What stands for no value.

/// The list of pandas.
const USUAL: [&str; 19] = [
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A",
    "NA", "NULL", "NaN", "None", "n/a", "nan", "null",
];

pub(super) struct Missing {
    texts: Vec<Vec<u8>>,
    /// Whether any of them begins with a byte: most fields need no second look.
    begins: [bool; 256],
    /// Whether an empty field is one of them.
    empty: bool,
    numbers: Vec<f64>,
}

impl Missing {
    /// The values that a user names, and pandas' own, unless they shall not count.
    pub fn new(more: &[String], usual: bool) -> Self {
        let usual = USUAL.iter().filter(|_| usual).map(|text| text.to_string());
        let mut texts: Vec<String> = usual.chain(more.iter().cloned()).collect();
        let parse = |text: &String| fast_float2::parse::<f64, _>(text).ok();
        let numbers: Vec<f64> = more
            .iter()
            .filter_map(parse)
            .filter(|value| !value.is_nan())
            .collect();
        // As in pandas, 999 and 999.0 both stand for either, in columns of text too.
        for whole in numbers.iter().filter(|value| value.fract() == 0.0) {
            texts.extend([format!("{whole:.0}"), format!("{whole:.1}")]);
        }
        let mut begins = [false; 256];
        for first in texts.iter().filter_map(|text| text.as_bytes().first()) {
            begins[usize::from(*first)] = true;
        }
        Self {
            empty: texts.iter().any(String::is_empty),
            texts: texts.into_iter().map(String::into_bytes).collect(),
            begins,
            numbers,
        }
    }

    #[inline]
    pub fn holds(&self, field: &[u8]) -> bool {
        match field.first() {
            None => self.empty,
            Some(first) => self.begins[usize::from(*first)] && self.texts.iter().any(|text| text == field),
        }
    }

    /// Whether a number stands for no value, however it is written.
    #[inline]
    pub fn holds_number(&self, value: f64) -> bool {
        self.numbers.contains(&value)
    }

    /// Whether any number does, so that numbers must be looked up too.
    pub fn has_numbers(&self) -> bool {
        !self.numbers.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_for_all_their_forms() {
        let missing = Missing::new(&["-999".to_owned(), "x".to_owned()], true);
        for text in ["-999", "-999.0", "x", "", "NA"] {
            assert!(missing.holds(text.as_bytes()), "{text}");
        }
        assert!(!missing.holds(b"-999.00") && missing.holds_number(-999.0));
        assert!(Missing::new(&["-999.0".to_owned()], true).holds(b"-999"));
        let alone = Missing::new(&["x".to_owned()], false);
        assert!(alone.holds(b"x") && !alone.holds(b"") && !alone.holds(b"NA") && !alone.has_numbers());
        assert!(Missing::new(&[String::new()], false).holds(b""));
    }
}
