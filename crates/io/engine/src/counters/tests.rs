//! Tests of tables of counters and their readers.

use super::*;

fn path(name: &str) -> std::path::PathBuf {
    std::env::temp_dir().join(format!("carina-counters-{}-{name}", std::process::id()))
}

#[test]
fn a_reader_sees_rows_in_use_and_no_others() {
    let path = path("rows");
    let table = Table::create(&path).unwrap();
    let flow = table.row(Kind::Flow, 7, "echo | caller");
    let ipcp = table.row(Kind::Ipcp, 1, &"é".repeat(100));
    flow.add(Value::SdusIn, 3);
    flow.add(Value::SdusIn, 4);
    flow.add(Value::DropTooLong, 1);
    flow.add(Value::DropOverrun, 2);
    let rows = read(&path).unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(
        (rows[0].kind, rows[0].id, rows[0].name.as_str()),
        (Kind::Flow, 7, "echo | caller")
    );
    assert_eq!((rows[0].get(Value::SdusIn), rows[0].drops()), (7, 3));
    assert_eq!(rows[1].name, "é".repeat(56));
    drop(flow);
    assert_eq!(read(&path).unwrap().len(), 1);
    let again = table.row(Kind::Flow, 8, "x");
    assert_eq!(again.read(Value::SdusIn), 0);
    let rows = read(&path).unwrap();
    assert_eq!((rows[0].id, rows[0].changes), (8, 2));
    drop((ipcp, again, table));
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn the_figures_outlive_their_writer() {
    let path = path("outlive");
    let table = Table::create(&path).unwrap();
    let row = table.row(Kind::Ipcp, 1, "hv");
    row.add(Value::BytesOut, 99);
    std::mem::forget((row, table));
    assert_eq!(read(&path).unwrap()[0].get(Value::BytesOut), 99);
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn a_full_table_costs_figures_and_nothing_else() {
    let table = Table::private().unwrap();
    let rows: Vec<Row> = (0..ROWS + 1)
        .map(|id| table.row(Kind::Flow, id as u64, ""))
        .collect();
    let last = rows.last().unwrap();
    last.add(Value::SdusIn, 1);
    assert_eq!(last.read(Value::SdusIn), 0);
}

#[test]
fn a_file_that_is_no_table_is_refused_with_its_path() {
    let path = path("wrong");
    std::fs::write(&path, vec![1; 10_000]).unwrap();
    let error = read(&path).unwrap_err().to_string();
    assert!(
        error.contains("not a table of counters") && error.contains("wrong"),
        "{error}"
    );
    std::fs::remove_file(&path).unwrap();
    assert!(read(&path).is_err());
}
