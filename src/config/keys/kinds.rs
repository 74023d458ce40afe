//! The kinds of values as types: what a key is declared with, and how its value is read. Types that are only named have no
//! values.

use std::convert::Infallible;
use std::marker::PhantomData;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::time;

use http::StatusCode;

use super::key::{DeclaredKeys, ValueKind};
use crate::config::item::{self, Item};
use crate::time::Timestamp;

/// Bounds of durations in microseconds.
pub const ZERO: u64 = 0;
pub const MILLISECOND: u64 = 1_000;
pub const SECOND: u64 = 1_000_000;
pub const MINUTE: u64 = 60 * SECOND;
pub const DAY: u64 = 24 * 60 * MINUTE;
/// 365 days.
pub const YEAR: u64 = 365 * DAY;

/// A kind of values.
pub trait Kinded {
    /// The kind for the reference and the schema.
    const KIND: ValueKind;
}

/// A kind whose values are read without further knowledge.
pub(in crate::config) trait ReadKind: Kinded {
    /// A value.
    type Value<'a>;

    /// Reads a value; `None` after a problem has been reported.
    fn read(item: Item<'_>) -> Option<Self::Value<'_>>;
}

/// A number of a type that holds every number of its key's range.
pub trait Whole: Sized {
    /// The number; `None` if the type does not hold it.
    fn of(number: u64) -> Option<Self>;
}

/// The words that a key takes, with their meanings. `words!` implements it.
pub trait Words {
    /// The meaning of a word.
    type Meaning: Copy + 'static;
    /// The words in the order of messages.
    const WORDS: &'static [&'static str];
    /// Each word with its meaning.
    const MEANINGS: &'static [(&'static str, Self::Meaning)];
}

/// `true` or `false`.
pub enum Boolean {}
/// A whole number from the first to the second.
pub struct Integer<const LOW: u64, const HIGH: u64, T = u64>(PhantomData<T>, Infallible);
/// A number from the first to the second, whole or not.
pub enum Decimal<const LOW: u32, const HIGH: u32> {}
/// A string such as "30s", from the first to the second.
pub enum Duration<const LOW: u64, const HIGH: u64> {}
/// A string such as "30s", from the first to the second, or "off".
pub enum DurationOrOff<const LOW: u64, const HIGH: u64> {}
/// A date, or a date and time with its offset.
pub enum Time {}
/// A number of bytes or a string such as "32KiB", from the first to the second.
pub enum Size<const LOW: u64, const HIGH: u64> {}
/// One of several words.
pub struct Choice<W>(PhantomData<W>, Infallible);
/// A string, which the reader of the key parses.
pub enum Text {}
/// An array.
pub struct List<K>(PhantomData<K>, Infallible);
/// A table.
pub struct KeyTable<T>(PhantomData<T>, Infallible);
/// A table whose keys are names that the user chooses.
pub struct NamedTable<K>(PhantomData<K>, Infallible);
/// A table with some known keys; all others are names that the user chooses.
pub struct Mixed<T, K>(PhantomData<(T, K)>, Infallible);
/// A value of either kind.
pub struct Either<A, B>(PhantomData<(A, B)>, Infallible);

/// Implements `Kinded` and `ReadKind` for kinds with these parameters.
macro_rules! read {
    ($([$($parameter:tt)*] $Kind:ty => $Value:ty, $kind:expr, $read:expr;)+) => {
        $(
            impl<$($parameter)*> Kinded for $Kind {
                const KIND: ValueKind = $kind;
            }

            impl<$($parameter)*> ReadKind for $Kind {
                type Value<'a> = $Value;

                fn read(item: Item<'_>) -> Option<$Value> {
                    ($read)(item)
                }
            }
        )+
    };
}

read! {
    [] Boolean => bool, ValueKind::Boolean, Item::boolean;
    [const LOW: u64, const HIGH: u64, T: Whole] Integer<LOW, HIGH, T> => T, ValueKind::Integer(LOW, HIGH),
        |item: Item<'_>| item.integer(&(LOW..=HIGH)).and_then(T::of);
    [const LOW: u32, const HIGH: u32] Decimal<LOW, HIGH> => f64, ValueKind::Decimal(LOW as f64, HIGH as f64),
        |item: Item<'_>| item.decimal(&(f64::from(LOW)..=f64::from(HIGH)));
    [const LOW: u64, const HIGH: u64] Duration<LOW, HIGH> => time::Duration,
        ValueKind::Duration(time::Duration::from_micros(LOW), time::Duration::from_micros(HIGH)),
        |item: Item<'_>| item.duration(&(time::Duration::from_micros(LOW)..=time::Duration::from_micros(HIGH)));
    [const LOW: u64, const HIGH: u64] DurationOrOff<LOW, HIGH> => Option<time::Duration>,
        ValueKind::DurationOrOff(time::Duration::from_micros(LOW), time::Duration::from_micros(HIGH)),
        |item: Item<'_>| {
            let is_off = item.is_string() && item.string().is_some_and(|text| text.value == "off");
            if is_off { Some(None) } else { Duration::<LOW, HIGH>::read(item).map(Some) }
        };
    [] Time => Timestamp, ValueKind::Time, Item::time;
    [const LOW: u64, const HIGH: u64] Size<LOW, HIGH> => usize, ValueKind::Size(LOW, HIGH),
        |item: Item<'_>| item.size(&(LOW..=HIGH));
    [W: Words] Choice<W> => W::Meaning, ValueKind::Choice(W::WORDS), |item: Item<'_>| item.choice(W::MEANINGS);
}

impl Kinded for Text {
    const KIND: ValueKind = ValueKind::Text;
}

impl<K: Kinded> Kinded for List<K> {
    const KIND: ValueKind = ValueKind::List(&K::KIND);
}

impl<T: DeclaredKeys> Kinded for KeyTable<T> {
    const KIND: ValueKind = ValueKind::Table(T::keys);
}

impl<K: Kinded> Kinded for NamedTable<K> {
    const KIND: ValueKind = ValueKind::Named(&K::KIND);
}

impl<T: DeclaredKeys, K: Kinded> Kinded for Mixed<T, K> {
    const KIND: ValueKind = ValueKind::Mixed(T::keys, &K::KIND);
}

impl<A: Kinded, B: Kinded> Kinded for Either<A, B> {
    const KIND: ValueKind = ValueKind::Either(&[A::KIND, B::KIND]);
}

impl ReadKind for Text {
    type Value<'a> = item::TextItem<'a>;

    fn read(item: Item<'_>) -> Option<item::TextItem<'_>> {
        item.string()
    }
}

/// Implements [`Whole`] for types that a `u64` is converted to.
macro_rules! whole {
    ($($T:ty: $of:expr),+) => {
        $(impl Whole for $T {
            fn of(number: u64) -> Option<Self> {
                ($of)(number)
            }
        })+
    };
}

whole! {
    u64: Some,
    u32: |number| u32::try_from(number).ok(),
    u16: |number| u16::try_from(number).ok(),
    u8: |number| u8::try_from(number).ok(),
    usize: |number| usize::try_from(number).ok(),
    NonZeroU64: NonZeroU64::new,
    StatusCode: |number| u16::try_from(number).ok().and_then(|status| StatusCode::from_u16(status).ok()),
    // 0 is for none.
    Option<NonZeroU32>: |number| u32::try_from(number).ok().map(NonZeroU32::new),
    Option<NonZeroUsize>: |number| usize::try_from(number).ok().map(NonZeroUsize::new)
}

/// The words of pairs.
pub const fn words_of<T: Copy, const N: usize>(meanings: [(&'static str, T); N]) -> [&'static str; N] {
    let mut words = [""; N];
    let mut at = 0;
    while at < N {
        words[at] = meanings[at].0;
        at += 1;
    }
    words
}

/// Declares the words of a key with their meanings, as in `words!(ResetWords: bool = [("delta", false), ("epoch", true)])`.
macro_rules! words {
    ($Words:ident: $Meaning:ty = $meanings:expr) => {
        pub enum $Words {}

        impl $crate::config::keys::kinds::Words for $Words {
            type Meaning = $Meaning;
            const WORDS: &'static [&'static str] = &$crate::config::keys::kinds::words_of($meanings);
            const MEANINGS: &'static [(&'static str, $Meaning)] = &$meanings;
        }
    };
}
pub(in crate::config) use words;

// Whether a version of HTTP is 2.
words!(ProtocolWords: bool = [("h1", false), ("h2", true)]);
words!(OffWords: () = [("off", ())]);
