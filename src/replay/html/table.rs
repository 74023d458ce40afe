//! Tables, which scroll in a box of their own where they are wider than the page.

use maud::{Markup, html};

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    title: String,
    is_number: bool,
}

/// A column of texts.
pub(super) fn text(title: &str) -> Column {
    Column { title: title.to_owned(), is_number: false }
}

/// A column of numbers.
pub(super) fn number(title: &str) -> Column {
    Column { title: title.to_owned(), is_number: true }
}

/// A table. The first cell of each row is its heading.
pub(super) fn table(caption: &str, columns: &[Column], rows: &[Vec<Markup>]) -> Markup {
    let class = |column: &Column| column.is_number.then_some("number");
    html! {
        // Outside of the box that scrolls, so that all of it can be read.
        h3 { (caption) }
        div.scroll role="region" aria-label=(caption) tabindex="0" {
            table aria-label=(caption) {
                thead { tr {
                    @for column in columns { th scope="col" class=[class(column)] { (column.title) } }
                } }
                tbody {
                    @for row in rows { tr {
                        @for (index, (column, cell)) in columns.iter().zip(row).enumerate() {
                            @if index == 0 { th scope="row" class=[class(column)] { (cell) } }
                            @else { td class=[class(column)] { (cell) } }
                        }
                    } }
                }
            }
        }
    }
}

/// A cell with a plain text.
pub(super) fn cell(text: impl AsRef<str>) -> Markup {
    html! { (text.as_ref()) }
}

/// A cell with the name of a key or another text that a client may have written.
pub(super) fn key(name: &str) -> Markup {
    html! { span.key { (name) } }
}
