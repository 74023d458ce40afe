//! Elements of the page: tables, figures with a caption and a legend, and small pictures of the hours of the day.

use maud::{Markup, PreEscaped, html};

use super::text::grouped;
use crate::plot::{Chart, bars};

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

/// What a colour and form of line mean.
#[derive(Clone, Debug)]
pub(super) struct LegendItem {
    /// The class of the line.
    pub class: &'static str,
    /// Whether it is a marked point in place of a line.
    pub is_point: bool,
    /// The meaning.
    pub text: String,
}

/// An item for a line.
pub(super) fn line(class: &'static str, text: impl Into<String>) -> LegendItem {
    LegendItem { class, is_point: false, text: text.into() }
}

/// An item for a marked point.
pub(super) fn point(class: &'static str, text: impl Into<String>) -> LegendItem {
    LegendItem { class, is_point: true, text: text.into() }
}

/// The meaning of lines and points.
pub(super) fn legend(items: &[LegendItem]) -> Markup {
    html! {
        ul.legend {
            @for item in items { li {
                svg width="26" height="12" aria-hidden="true" {
                    @if item.is_point { path class=(item.class) d="M13 0l6 6-6 6-6-6z" {} }
                    @else { path class={ "curve " (item.class) } d="M1 6h24" {} }
                }
                (item.text)
            } }
        }
    }
}

/// A chart, with a caption unless the heading above it says enough.
pub(super) fn figure(chart: &Chart, caption: Option<&Markup>) -> Markup {
    html! {
        figure {
            @if let Some(caption) = caption { figcaption { (caption) } }
            (PreEscaped(chart.draw()))
        }
    }
}

/// A picture of how many `what` there are in each hour of the day.
pub(super) fn hours(counts: &[u64; 24], what: &str) -> Markup {
    let most = counts.iter().enumerate().max_by_key(|(hour, count)| (**count, std::cmp::Reverse(*hour)));
    let name = match most {
        Some((hour, count)) if *count > 0 => {
            format!("{what} by hour of the day: most from {hour} to {} h, {}", hour + 1, grouped(*count))
        }
        _ => format!("no {what}"),
    };
    html! { span class={ "hours " (what) } { (PreEscaped(bars(counts, &name))) } }
}
