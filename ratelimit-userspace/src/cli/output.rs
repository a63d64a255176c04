//! Text for people: tables without frames, and colours for those who sit at a terminal.

use std::{
    env,
    io::{self, IsTerminal, Write},
};

use comfy_table::{CellAlignment, Table, presets};
use ratelimit::admin::schema::Traffic;
pub(super) use ratelimit::text::number;

/// Whether to colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Style {
    coloured: bool,
}

/// What a colour stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    /// A heading.
    Heading,
    /// As it should be.
    Good,
    /// Worth a look.
    Warning,
    /// Wrong, or shed.
    Bad,
}

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

/// Writes a table with its headings set off, and nothing at the end of its lines.
pub(super) fn write_table(out: &mut impl Write, table: &Table, style: Style) -> io::Result<()> {
    for (index, line) in table.lines().enumerate() {
        let line = line.trim_end();
        if index == 0 {
            writeln!(out, "{}", style.paint(Tone::Heading, line))?;
        } else {
            writeln!(out, "{line}")?;
        }
    }
    Ok(())
}

/// Writes one value as JSON, on lines of its own.
pub(super) fn write_json(out: &mut impl Write, value: &impl serde::Serialize) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, value)?;
    writeln!(out)
}

/// Packets, with the error if there is one.
pub(super) fn estimate(Traffic { packets, packets_error, .. }: &Traffic) -> String {
    match packets_error {
        0 => number(packets),
        error => format!("{} ±{}", number(packets), number(error)),
    }
}

// === impl Style ===

impl Style {
    /// No colours.
    #[cfg(test)]
    pub(super) const PLAIN: Self = Self { coloured: false };

    /// Colours for a terminal, unless `NO_COLOR` (<https://no-color.org>) or a dumb terminal forbids them.
    pub(super) fn of(stream: &impl IsTerminal) -> Self {
        let forbidden = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || env::var_os("TERM").is_some_and(|value| value == "dumb");
        Self { coloured: stream.is_terminal() && !forbidden }
    }

    /// The text in this tone.
    pub(super) fn paint(self, tone: Tone, text: &str) -> String {
        if !self.coloured || text.is_empty() {
            return text.to_owned();
        }
        let code = match tone {
            Tone::Heading => 1,
            Tone::Good => 32,
            Tone::Warning => 33,
            Tone::Bad => 31,
        };
        format!("\x1b[{code}m{text}\x1b[0m")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_line_up_on_the_right() {
        let mut table = table(&["name", "count"], 1);
        table.add_row(["a", "5"]).add_row(["longer", "1,000"]);
        let mut lines = Vec::new();
        write_table(&mut lines, &table, Style::PLAIN).expect("memory");
        assert_eq!(String::from_utf8(lines).expect("text"), "name    count\na           5\nlonger  1,000\n");
    }

    #[test]
    fn only_the_headings_of_a_table_are_coloured() {
        let mut table = table(&["name"], 1);
        table.add_row(["a"]);
        let mut lines = Vec::new();
        write_table(&mut lines, &table, Style { coloured: true }).expect("memory");
        assert_eq!(String::from_utf8(lines).expect("text"), "\x1b[1mname\x1b[0m\na\n");
    }

    #[test]
    fn a_file_gets_no_colours() {
        let file = tempfile::tempfile().expect("a file");
        assert_eq!(Style::of(&file), Style::PLAIN);
        assert_eq!(Style::PLAIN.paint(Tone::Bad, "shed"), "shed");
    }
}
