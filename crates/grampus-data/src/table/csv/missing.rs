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
    /// Whether a number stands for no value, so that numbers must be looked up too.
    pub numbers: bool,
}

impl Missing {
    pub fn new(more: &[String]) -> Self {
        let texts = USUAL.iter().copied().chain(more.iter().map(String::as_str));
        let texts: Vec<Vec<u8>> = texts.map(|text| text.as_bytes().to_vec()).collect();
        let mut begins = [false; 256];
        for first in texts.iter().filter_map(|text| text.first()) {
            begins[usize::from(*first)] = true;
        }
        Self {
            numbers: more
                .iter()
                .any(|text| fast_float2::parse::<f64, _>(text).is_ok_and(|value| !value.is_nan())),
            texts,
            begins,
        }
    }

    #[inline]
    pub fn holds(&self, field: &[u8]) -> bool {
        match field.first() {
            None => true,
            Some(first) => self.begins[usize::from(*first)] && self.texts.iter().any(|text| text == field),
        }
    }
}
