use super::*;
use crate::batch::{Column, Output, Packed, Stored, pack};
use arrow::array::{
    BooleanArray, DictionaryArray, FixedSizeListArray, Int32Array, Int64Array, ListArray, RecordBatch,
    StringArray,
};
use arrow::datatypes::{Int32Type, Int64Type};
use proptest::prelude::*;

fn packed(
    columns: Vec<(&str, ArrayRef)>,
    steps: &[(&str, Option<&str>)],
    skip: bool,
) -> Result<Packed, DataError> {
    let table = RecordBatch::try_from_iter_with_nullable(
        columns.into_iter().map(|(name, array)| (name, array, true)),
    );
    let columns = steps.iter().map(|(name, step)| Column {
        name: (*name).to_owned(),
        step: step.map(|step| serde_json::from_str(step).unwrap()),
    });
    let output = Output::new(columns, None);
    pack(&table.unwrap(), &[output], &Place::file("a.parquet"), skip)
}

/// The numbers, as text says them, and the shape of a row.
fn done(array: impl Array + 'static, step: &str) -> Result<(Kind, Vec<usize>, Vec<f64>), String> {
    let found = packed(vec![("a", Arc::new(array))], &[("a", Some(step))], false);
    found
        .map(|packed| numbers_of(&packed))
        .map_err(|error| error.to_string())
}

fn numbers_of(packed: &Packed) -> (Kind, Vec<usize>, Vec<f64>) {
    let Stored::Numbers(matrix) = &packed.outputs[0] else {
        panic!("numbers are wanted");
    };
    let each = matrix.data.chunks_exact(matrix.kind.size());
    let numbers = each.map(|bytes| match matrix.kind {
        Kind::F32 => f64::from(f32::from_ne_bytes(bytes.try_into().unwrap())),
        Kind::F64 => f64::from_ne_bytes(bytes.try_into().unwrap()),
        Kind::I64 => i64::from_ne_bytes(bytes.try_into().unwrap()) as f64,
        Kind::U8 | Kind::Bool => f64::from(bytes[0]),
        other => panic!("{other:?} is not tested"),
    });
    (matrix.kind, matrix.shape.clone(), numbers.collect())
}

fn lists(rows: Vec<Option<Vec<Option<i64>>>>) -> ListArray {
    ListArray::from_iter_primitive::<Int64Type, _, _>(rows)
}

#[test]
fn numbers_of_another_kind() {
    let numbers = Int64Array::from(vec![0, 300]);
    let found = done(numbers.clone(), r#"{"cast": {"kind": "f64"}}"#);
    assert_eq!(found.unwrap(), (Kind::F64, vec![], vec![0.0, 300.0]));
    let found = done(numbers.clone(), r#"{"cast": {"kind": "bool"}}"#);
    assert_eq!(found.unwrap(), (Kind::Bool, vec![], vec![0.0, 1.0]));
    let error = done(numbers, r#"{"cast": {"kind": "u8"}}"#).unwrap_err();
    assert_eq!(
        error,
        r#"a.parquet, row 1, column "a": its value does not fit into u8: choose another type"#
    );
}

#[test]
fn scales_are_rounded_once() {
    let numbers = Int64Array::from(vec![3, 255]);
    let found = done(
        numbers,
        r#"{"scale": {"by": 0.003921568627450980, "offset": 0.1}}"#,
    );
    let wanted = [3.0, 255.0].map(|value: f64| f64::from((value * 0.003_921_568_627_450_98 + 0.1) as f32));
    assert_eq!(found.unwrap(), (Kind::F32, vec![], wanted.to_vec()));
    // Lists keep their axes.
    let found = done(
        lists(vec![Some(vec![Some(2), Some(4)])]),
        r#"{"normalise": {"mean": 2, "std": 4}}"#,
    );
    assert_eq!(found.unwrap(), (Kind::F32, vec![2], vec![0.0, 0.5]));
}

#[test]
fn one_number_for_each_class() {
    let count = r#"{"one_hot": {"classes": 3}}"#;
    let wanted = vec![0.0, 0.0, 1.0, 1.0, 0.0, 0.0];
    for array in [
        Arc::new(Int32Array::from(vec![2, 0])) as ArrayRef,
        Arc::new(Float64Array::from(vec![2.0, -0.0])),
    ] {
        assert_eq!(done(array, count).unwrap(), (Kind::F32, vec![3], wanted.clone()));
    }
    let found = done(
        BooleanArray::from(vec![true, false]),
        r#"{"one_hot": {"classes": 2}}"#,
    );
    assert_eq!(found.unwrap().2, [0.0, 1.0, 1.0, 0.0]);
    let found = done(
        Float64Array::from(vec![0.0, 7.5]),
        r#"{"one_hot": {"classes": [7.5, -0.0]}}"#,
    );
    assert_eq!(found.unwrap().2, [0.0, 1.0, 1.0, 0.0]);
    let cities = r#"{"one_hot": {"classes": ["Rome", "Oslo"]}}"#;
    let texts = ["Oslo", "Rome", "Oslo"];
    for array in [
        Arc::new(StringArray::from_iter_values(texts)) as ArrayRef,
        Arc::new(texts.into_iter().collect::<DictionaryArray<Int32Type>>()),
    ] {
        assert_eq!(done(array, cities).unwrap().2, [0.0, 1.0, 1.0, 0.0, 0.0, 1.0]);
    }
    let nested = done(
        lists(vec![Some(vec![Some(1), Some(0)])]),
        r#"{"one_hot": {"classes": 2}}"#,
    );
    assert_eq!(nested.unwrap(), (Kind::F32, vec![2, 2], vec![0.0, 1.0, 1.0, 0.0]));
}

#[test]
fn what_has_no_class_is_named() {
    let count = r#"{"one_hot": {"classes": 3}}"#;
    for outside in [3.0, -1.0, 0.5, f64::NAN] {
        let error = done(Float64Array::from(vec![1.0, outside]), count).unwrap_err();
        let wanted = format!(
            "a.parquet, row 1, column \"a\": its value {outside:?} is no class: with classes=3 they are whole \
             numbers from 0 to 2"
        );
        assert_eq!(error, wanted);
    }
    let error = done(Int64Array::from(vec![None, Some(1)]), count).unwrap_err();
    assert!(
        error.starts_with("a.parquet, row 0, column \"a\" is null"),
        "{error}"
    );
    let cities = r#"{"one_hot": {"classes": ["Rome"]}}"#;
    let error = done(StringArray::from(vec!["Rome", "Bonn"]), cities).unwrap_err();
    assert_eq!(
        error,
        r#"a.parquet, row 1, column "a": its value "Bonn" is none of the 1 classes"#
    );
    let error = done(Int64Array::from(vec![1]), cities).unwrap_err();
    assert!(
        error.contains("column \"a\": it holds Int64, and the classes are texts"),
        "{error}"
    );
    let error = done(StringArray::from(vec!["Rome"]), count).unwrap_err();
    assert!(
        error.contains("column \"a\": it holds text: name its classes"),
        "{error}"
    );
}

#[test]
fn lists_are_filled_up() {
    let pad = r#"{"pad": {"length": 3, "value": -1, "truncate": false}}"#;
    let rows = lists(vec![
        Some(vec![]),
        Some(vec![Some(5), Some(6), Some(7)]),
        Some(vec![Some(8)]),
    ]);
    let wanted = vec![-1.0, -1.0, -1.0, 5.0, 6.0, 7.0, 8.0, -1.0, -1.0];
    assert_eq!(done(rows.clone(), pad).unwrap(), (Kind::I64, vec![3], wanted));
    // A slice begins in the middle of what its lists share.
    assert_eq!(done(rows.slice(2, 1), pad).unwrap().2, [8.0, -1.0, -1.0]);
    let fixed = FixedSizeListArray::from_iter_primitive::<Int64Type, _, _>(
        [[1, 2], [3, 4]].map(|row| Some(row.map(Some))),
        2,
    );
    assert_eq!(done(fixed.slice(1, 1), pad).unwrap().2, [3.0, 4.0, -1.0]);
    let short = r#"{"pad": {"length": 2, "value": 0, "truncate": true}}"#;
    assert_eq!(
        done(rows.clone(), short).unwrap().2,
        [0.0, 0.0, 5.0, 6.0, 8.0, 0.0]
    );
    let error = done(rows, &short.replace("true", "false")).unwrap_err();
    let wanted = "a.parquet, row 1, column \"a\": a list of 3 values, where 2 have room";
    assert!(error.starts_with(wanted), "{error}");
}

#[test]
fn rows_are_counted_in_lists_of_lists() {
    let inner = lists(vec![
        Some(vec![Some(1)]),
        Some(vec![Some(2)]),
        Some(vec![Some(3)]),
        Some(vec![None]),
    ]);
    let item = Arc::new(arrow::datatypes::Field::new_list_field(
        inner.data_type().clone(),
        true,
    ));
    let outer = FixedSizeListArray::new(item, 2, Arc::new(inner), None);
    let cast = r#"{"cast": {"kind": "f32"}}"#;
    assert_eq!(
        done(outer.slice(0, 1), cast).unwrap(),
        (Kind::F32, vec![2, 1], vec![1.0, 2.0])
    );
    let error = done(outer.clone(), cast).unwrap_err();
    assert!(
        error.starts_with("a.parquet, row 1, column \"a\" is null"),
        "{error}"
    );
    let pad = r#"{"pad": {"length": 3, "value": 0, "truncate": false}}"#;
    let error = done(outer, pad).unwrap_err();
    assert!(error.contains("lists in lists"), "{error}");
}

#[test]
fn bad_rows_of_steps_can_be_skipped() {
    let rows = lists(vec![
        None,
        Some(vec![None, Some(1)]),
        Some(vec![Some(2)]),
        Some(vec![Some(3); 4]),
    ]);
    let pad = r#"{"pad": {"length": 2, "value": 0, "truncate": false}}"#;
    let found = packed(vec![("a", Arc::new(rows))], &[("a", Some(pad))], true).unwrap();
    let bad: Vec<usize> = found.bad.iter().map(|bad| bad.row).collect();
    assert_eq!(bad, [0, 1, 3]);
    assert!(found.bad[0].why.contains("is null") && found.bad[2].why.contains("a list of 4 values"));
    assert_eq!(numbers_of(&found).2[4..6], [2.0, 0.0]);
}

#[test]
fn wrong_steps_name_the_column() {
    let numbers = || Arc::new(Int64Array::from(vec![1])) as ArrayRef;
    let text = || Arc::new(StringArray::from(vec!["x"])) as ArrayRef;
    let list = || Arc::new(lists(vec![Some(vec![Some(1)])])) as ArrayRef;
    for (array, step, why) in [
        (numbers(), r#"{"normalise": {"mean": 0, "std": 0}}"#, "std is 0"),
        (text(), r#"{"normalise": {"mean": 0, "std": 1}}"#, "holds text"),
        (text(), r#"{"cast": {"kind": "f32"}}"#, "holds text"),
        (
            numbers(),
            r#"{"pad": {"length": 2, "value": 0, "truncate": false}}"#,
            "only lists",
        ),
        (
            list(),
            r#"{"pad": {"length": 2, "value": 0.5, "truncate": false}}"#,
            "0.5 is none",
        ),
    ] {
        let error = done(array, step).unwrap_err();
        assert!(error.contains("column \"a\"") && error.contains(why), "{error}");
    }
    for step in [
        r#"{"one_hot": {"classes": 0}}"#,
        r#"{"pad": {"length": 0, "value": 0, "truncate": true}}"#,
        r#"{"scale": {"by": 2, "offset": 0, "of": 1}}"#,
    ] {
        assert!(serde_json::from_str::<Step>(step).is_err(), "{step}");
    }
}

#[test]
fn classes_stand_beside_numbers() {
    let columns = || -> Vec<(&str, ArrayRef)> {
        vec![
            ("age", Arc::new(Int64Array::from(vec![30, 40]))),
            ("colour", Arc::new(Int64Array::from(vec![1, 0]))),
            (
                "words",
                Arc::new(lists(vec![Some(vec![Some(1)]), Some(vec![Some(2)])])),
            ),
        ]
    };
    let hot = Some(r#"{"one_hot": {"classes": 2}}"#);
    let found = packed(columns(), &[("age", None), ("colour", hot), ("age", None)], false).unwrap();
    let wanted = vec![30.0, 0.0, 1.0, 30.0, 40.0, 1.0, 0.0, 40.0];
    assert_eq!(numbers_of(&found), (Kind::F32, vec![4], wanted));
    let precise = [("colour", hot), ("age", Some(r#"{"cast": {"kind": "f64"}}"#))];
    assert_eq!(
        numbers_of(&packed(columns(), &precise, false).unwrap()).0,
        Kind::F64
    );
    for beside in [("words", None), ("words", hot)] {
        let error = packed(columns(), &[("colour", hot), beside], false)
            .unwrap_err()
            .to_string();
        assert!(error.contains("column \"words\": it holds lists"), "{error}");
    }
}

proptest! {
    #[test]
    fn as_a_plain_loop_does_it(
        rows in prop::collection::vec((-1000.0..1000.0_f64, 0..5_i64, prop::collection::vec(-9..9_i64, 0..6)), 1..300),
        by in -4.0..4.0_f64,
    ) {
        let a = Float64Array::from_iter_values(rows.iter().map(|row| row.0));
        let b = Int64Array::from_iter_values(rows.iter().map(|row| row.1));
        let words = lists(rows.iter().map(|row| Some(row.2.iter().copied().map(Some).collect())).collect());
        let scale = format!(r#"{{"scale": {{"by": {by:?}, "offset": 1}}}}"#);
        let side_by_side = [("a", Some(scale.as_str())), ("b", Some(r#"{"one_hot": {"classes": 5}}"#))];
        let found = packed(vec![("a", Arc::new(a)), ("b", Arc::new(b))], &side_by_side, false).unwrap();
        let mut wanted = Vec::new();
        for (value, class, _) in &rows {
            wanted.push(f64::from((value * by + 1.0) as f32));
            wanted.extend((0..5).map(|each| f64::from(u8::from(each == *class))));
        }
        prop_assert_eq!(numbers_of(&found), (Kind::F32, vec![6], wanted));
        let pad = r#"{"pad": {"length": 4, "value": 7, "truncate": true}}"#;
        let wanted: Vec<f64> = rows
            .iter()
            .flat_map(|row| row.2.iter().copied().chain([7; 4]).take(4))
            .map(|number| number as f64)
            .collect();
        prop_assert_eq!(done(words, pad).unwrap().2, wanted);
    }
}
