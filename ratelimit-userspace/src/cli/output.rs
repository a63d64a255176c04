//! Text for people: tables without frames.

use comfy_table::{CellAlignment, Table, presets};
pub(super) use ratelimit::text::number;

/// A table whose columns from `numbers` on are aligned to the right.
pub(super) fn table(headings: &[&str], numbers: usize) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(headings.iter().copied());
    for (index, column) in table.column_iter_mut().enumerate() {
        column.set_padding((0, 2));
        if index >= numbers {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_line_up_on_the_right() {
        let mut table = table(&["name", "count"], 1);
        table.add_row(["a", "5"]).add_row(["longer", "1,000"]);
        let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
        assert_eq!(lines, ["name    count", "a           5", "longer  1,000"]);
    }
}
