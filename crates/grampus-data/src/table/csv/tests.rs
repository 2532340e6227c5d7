//! Rows and fields in all their forms, cut anywhere.

use arrow::array::Array;
use arrow::util::display::array_value_to_string;
use proptest::prelude::*;

use super::*;

fn options(json: &str) -> CsvOptions {
    serde_json::from_str(json).unwrap()
}

fn try_read(text: &[u8], options: &CsvOptions, part_bytes: usize) -> Result<Table, String> {
    let input = Input {
        name: "t.csv".to_owned(),
        bytes: Bytes::copy_from_slice(text),
    };
    read_inputs(&[input], &[], options, part_bytes).map_err(|error| error.to_string())
}

/// Names and types, then rows of values; no value is "∅".
fn shown(table: &Table) -> (Vec<String>, Vec<Vec<String>>) {
    let head = table.schema().fields().iter();
    let head = head
        .map(|field| format!("{}:{}", field.name(), field.data_type()))
        .collect();
    let mut rows = Vec::new();
    for batch in table.batches() {
        for row in 0..batch.num_rows() {
            let value = |column: &ArrayRef| match column.is_null(row) {
                true => "∅".to_owned(),
                false => array_value_to_string(column, row).unwrap(),
            };
            rows.push(batch.columns().iter().map(value).collect());
        }
    }
    (head, rows)
}

/// Reads a text cut at every place, which must make no difference.
fn read_text(text: &str, options: &CsvOptions) -> (Vec<String>, Vec<Vec<String>>) {
    let whole = shown(&try_read(text.as_bytes(), options, usize::MAX / 2).unwrap());
    for part_bytes in 1..text.len() {
        let cut = shown(&try_read(text.as_bytes(), options, part_bytes).unwrap());
        assert_eq!(cut, whole, "cut after {part_bytes} bytes");
    }
    whole
}

fn expect(text: &str, json: &str, head: &[&str], rows: &[&[&str]]) {
    let found = read_text(text, &options(json));
    assert_eq!(found.0, head);
    assert_eq!(found.1, rows);
}

fn error(text: &[u8], json: &str) -> String {
    try_read(text, &options(json), 8).unwrap_err()
}

#[test]
fn types_hold_all_values() {
    let text =
        "i,f,b,s,late,n\n1,1.5,true,x,1,\n-2,2,False,\"y,z\",2,NA\n,nan,,,2.5,null\n007,1e3,TRUE,true,-3,\n";
    let head = [
        "i:Int64",
        "f:Float64",
        "b:Boolean",
        "s:Utf8",
        "late:Float64",
        "n:Float64",
    ];
    let rows: [&[&str]; 4] = [
        &["1", "1.5", "true", "x", "1.0", "∅"],
        &["-2", "2.0", "false", "y,z", "2.0", "∅"],
        &["∅", "∅", "∅", "∅", "2.5", "∅"],
        &["7", "1000.0", "true", "true", "-3.0", "∅"],
    ];
    expect(text, "{}", &head, &rows);
}

#[test]
fn quotes_lines_and_spaces() {
    let text =
        "\u{feff}a,b\r\n\"x\r\ny\",\"say \"\"hi\"\"\"\r\n\r\n  \r\n5\" pipe, 7 \r\n\"q\"rest,\"\"\r\nü";
    let rows: [&[&str]; 4] = [
        &["x\r\ny", "say \"hi\""],
        &["5\" pipe", " 7 "],
        &["qrest", "∅"],
        &["ü", "∅"],
    ];
    expect(text, "{}", &["a:Utf8", "b:Utf8"], &rows);
    expect("a\n 1\n2 \n", "{}", &["a:Int64"], &[&["1"], &["2"]]);
    expect(
        "a,b\n\"1\",\"2.5\"\n",
        "{}",
        &["a:Int64", "b:Float64"],
        &[&["1", "2.5"]],
    );
}

#[test]
fn marks_can_be_chosen() {
    let text = "# head\na;b # names\n1;'x;y'\n#gone\n2;z\\;w\\\nv#end\n";
    let json = r##"{"sep": ";", "quotechar": "'", "escapechar": "\\", "comment": "#"}"##;
    expect(
        text,
        json,
        &["a:Int64", "b :Utf8"],
        &[&["1", "x;y"], &["2", "z;w\nv"]],
    );
    // Marks that can stand in numbers.
    expect(
        "a.b\n1.5\n",
        r#"{"sep": "."}"#,
        &["a:Int64", "b:Int64"],
        &[&["1", "5"]],
    );
    expect(
        "a,b\n1,1e-5\n",
        r#"{"comment": "-"}"#,
        &["a:Int64", "b:Utf8"],
        &[&["1", "1e"]],
    );
    expect("a\n\"x\n", r#"{"quotechar": null}"#, &["a:Utf8"], &[&["\"x"]]);
}

#[test]
fn headers_and_names() {
    let text = "1,x\n2,y\n";
    expect(
        text,
        r#"{"header": null}"#,
        &["0:Int64", "1:Utf8"],
        &[&["1", "x"], &["2", "y"]],
    );
    expect(
        text,
        r#"{"names": ["p", "q", "r"]}"#,
        &["p:Int64", "q:Utf8", "r:Float64"],
        &[&["1", "x", "∅"], &["2", "y", "∅"]],
    );
    expect(
        text,
        r#"{"names": ["p", "q"], "header": 0}"#,
        &["p:Int64", "q:Utf8"],
        &[&["2", "y"]],
    );
    expect(
        "junk\na,a,,a\n1,2,3,4\n",
        r#"{"header": 1}"#,
        &["a:Int64", "a.1:Int64", "Unnamed: 2:Int64", "a.2:Int64"],
        &[&["1", "2", "3", "4"]],
    );
    expect("a,b\n", "{}", &["a:Float64", "b:Float64"], &[]);
}

#[test]
fn columns_rows_and_types_can_be_chosen() {
    let text = "a,b,c\n1,2,3\n4,5,6\n7,-1,9\n";
    expect(
        text,
        r#"{"usecols": ["c", "a"], "nrows": 2}"#,
        &["a:Int64", "c:Int64"],
        &[&["1", "3"], &["4", "6"]],
    );
    expect(
        text,
        r#"{"usecols": [1], "na_values": ["-1"]}"#,
        &["b:Int64"],
        &[&["2"], &["5"], &["∅"]],
    );
    expect(
        text,
        r#"{"dtype": "float32", "nrows": 1}"#,
        &["a:Float32", "b:Float32", "c:Float32"],
        &[&["1.0", "2.0", "3.0"]],
    );
    let json = r#"{"dtype": {"a": "str", "c": "uint64"}, "usecols": ["a", "c"]}"#;
    expect(
        text,
        json,
        &["a:Utf8", "c:UInt64"],
        &[&["1", "3"], &["4", "6"], &["7", "9"]],
    );
}

#[test]
fn what_is_wrong_is_named() {
    let too_many = "t.csv, line 4 has 3 fields of at most 2: quote values that hold the separator";
    assert_eq!(error(b"a,b\n\"1\n\",2\n3,4,5\n", "{}"), too_many);
    assert_eq!(
        error(b"a,b\n1,\"2\n", "{}"),
        "t.csv, line 2 is damaged: a quote that opens in this line is never closed"
    );
    assert!(error(b"", "{}").starts_with("t.csv is damaged: it has 0 rows"));
    assert!(error(b"a\n\xff\n", "{}").starts_with("t.csv, line 2, column \"a\" is damaged: it is no UTF-8"));
    assert_eq!(
        error(b"age\n1\n", r#"{"usecols": ["ages"]}"#),
        "there is no column \"ages\": do you mean \"age\"?"
    );
    assert!(error(b"age\n1\n", r#"{"usecols": [1]}"#).starts_with("usecols: there is no column 1"));
    assert!(error(b"a\n1\n", r#"{"sep": "::"}"#).starts_with("sep: \"::\" is not one ASCII character"));
    assert!(error(b"a\n1\n", r#"{"sep": "\""}"#).contains("cannot mean two things"));
    assert!(error(b"a\n1\n", r#"{"dtype": {"b": "int8"}}"#).contains("there is no column \"b\""));
    let wrong = error(b"a,b\n1,2\n3,x\n", r#"{"dtype": "int64"}"#);
    assert!(
        wrong.starts_with("t.csv, line 3, column \"b\": \"x\" is no Int64"),
        "{wrong}"
    );
    let wrong = error(b"a,b\n1,2\n300,3\n", r#"{"dtype": {"a": "int8"}}"#);
    assert!(
        wrong.starts_with("t.csv, line 3, column \"a\": \"300\" is no Int8"),
        "{wrong}"
    );
}

#[test]
fn files_must_have_the_same_columns() {
    let input = |name: &str, text: &'static str| Input {
        name: name.to_owned(),
        bytes: text.into(),
    };
    let read = |inputs: &[Input]| read_inputs(inputs, &[], &CsvOptions::default(), PART_BYTES);
    let table = read(&[input("a", "x,y\n1,2\n"), input("b", "x,y\n1.5,\n")]).unwrap();
    assert_eq!(shown(&table).0, ["x:Float64", "y:Int64"]);
    assert_eq!(shown(&table).1, [["1.0", "2"], ["1.5", "∅"]]);
    let error = read(&[input("a", "x,y\n"), input("b", "x,z\n")])
        .unwrap_err()
        .to_string();
    assert!(
        error.starts_with("a and b do not have the same columns: the second has no column \"y\""),
        "{error}"
    );
}

/// A field as a writer puts it down; quotes where they are needed, and sometimes where not.
fn quoted(field: &str, always: bool) -> String {
    match always || field.contains(['"', ',', '\n', '\r']) || field.starts_with([' ', '\t']) {
        true => format!("\"{}\"", field.replace('"', "\"\"")),
        false => field.to_owned(),
    }
}

proptest! {
    #[test]
    fn what_is_written_is_read(
        rows in prop::collection::vec(prop::collection::vec(("[a-zü\"',\\n\\r #\\\\0-9.-]{0,6}", any::<bool>()), 3), 0..8),
        part_bytes in 1usize..40,
        crlf in any::<bool>(),
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let mut text = format!("a,b,c{end}");
        for row in &rows {
            let fields: Vec<String> = row.iter().map(|(field, always)| quoted(field, *always)).collect();
            text += &(fields.join(",") + end);
        }
        let table = try_read(text.as_bytes(), &options(r#"{"dtype": "str"}"#), part_bytes).unwrap();
        let missing = Missing::new(&[], true);
        let wanted: Vec<Vec<String>> = rows
            .iter()
            .map(|row| row.iter().map(|(field, _)| match missing.holds(field.as_bytes()) {
                true => "∅".to_owned(),
                false => field.clone(),
            }).collect())
            .collect();
        prop_assert_eq!(shown(&table).1, wanted);
    }

    #[test]
    fn numbers_are_read_as_rust_reads_them(
        values in prop::collection::vec((any::<i64>(), prop::num::f64::NORMAL | prop::num::f64::ZERO, -999i64..999), 1..20),
        part_bytes in 1usize..200,
    ) {
        let lines: Vec<String> = values.iter().map(|(int, float, short)| format!("{int},{float:?},{short}\n")).collect();
        let text = format!("a,b,c\n{}", lines.concat());
        let table = try_read(text.as_bytes(), &CsvOptions::default(), part_bytes).unwrap();
        prop_assert_eq!(table.schema().field(0).data_type(), &DataType::Int64);
        prop_assert_eq!(table.schema().field(1).data_type(), &DataType::Float64);
        let wanted: Vec<Vec<String>> = values
            .iter()
            .map(|(int, float, short)| {
                let float = arrow::array::Float64Array::from(vec![*float]);
                vec![int.to_string(), array_value_to_string(&float, 0).unwrap(), short.to_string()]
            })
            .collect();
        prop_assert_eq!(shown(&table).1, wanted);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(prop::sample::select(b"a1.,\"\n\r# \\-\xff".to_vec()), 0..40)) {
        let whole = try_read(&bytes, &CsvOptions::default(), usize::MAX / 2);
        let cut = try_read(&bytes, &CsvOptions::default(), 3);
        prop_assert_eq!(whole.is_ok(), cut.is_ok());
        if let (Ok(whole), Ok(cut)) = (whole, cut) {
            prop_assert_eq!(shown(&whole), shown(&cut));
        }
    }
}
