//! Tables of text with aligned columns.

use crate::telemetry::escaped;

/// The lines of a table, the first of which has the names of the columns. Cells are escaped, since they may have text from
/// clients.
pub(super) fn aligned<const N: usize>(
    header: [&str; N],
    rows: impl Iterator<Item = [String; N]>,
) -> Vec<String> {
    let rows = rows.map(|row| row.map(|cell| escaped(&cell)));
    let rows: Vec<[String; N]> = std::iter::once(header.map(str::to_owned)).chain(rows).collect();
    let widths: [usize; N] = std::array::from_fn(|column| {
        rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default()
    });
    rows.iter().map(|row| line(row, &widths)).collect()
}

fn line(row: &[String], widths: &[usize]) -> String {
    let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
    cells.join("  ").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_from_clients_does_not_act_on_the_terminal() {
        let rows = [["a\u{1b}[2J\n".to_owned(), "b".to_owned()], ["\u{202e}".to_owned(), "é".to_owned()]];
        let lines = aligned(["KEY", "X"], rows.into_iter());
        assert_eq!(lines, ["KEY               X", r"a\u001b[2J\u000a  b", r"\u202e            é"]);
    }
}
