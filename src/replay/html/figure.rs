//! Figures: charts with a caption and a legend.

use maud::{Markup, PreEscaped, html};

use crate::plot::Chart;

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
