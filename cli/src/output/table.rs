//! Plain tables: aligned columns without lines, as kubectl prints them.

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table with a head.
pub(crate) struct Columns(Table);

impl Columns {
    /// A table with these heads.
    pub(crate) fn new(heads: &[&str]) -> Self {
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
        table.set_header(heads);
        for column in table.column_iter_mut() {
            column.set_padding((0, 2));
        }
        Self(table)
    }

    /// Numbers stand at the right.
    pub(crate) fn right(mut self, columns: &[usize]) -> Self {
        for index in columns {
            if let Some(column) = self.0.column_mut(*index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        self
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.0.add_row(cells.into_iter().collect::<Vec<_>>());
    }

    /// The table's text, lines without blanks at their ends.
    pub(crate) fn text(&self) -> String {
        self.0.lines().map(|line| format!("{}\n", line.trim_end())).collect()
    }
}
