//! The declaration of a table: `keys!`.

/// Declares the keys of a table of the file: a type for them, the entries of the reference and of the schema, and a method of
/// `Table` for each key, which returns a `Field` that knows the kind of its values.
///
/// ```text
/// keys! {
///     /// The keys of `health`.
///     HealthKeys {
///         /// The meaning of the key, in Markdown
///         path: Text, required "/healthz" => path;
///         /// A key with a default
///         interval: Duration<MILLISECOND, DAY> = "5s";
///         /// A key that may be missing: then nothing happens, or what the words say
///         ca: Text, or "the system's authorities", by hand;
///         /// A key with another name in the file
///         lasts("for"): Duration<MILLISECOND, DAY> = "30s";
///     }
///     reads HealthSpec(table, name: &str) with { name: name.into() }
/// }
/// ```
///
/// `reads` adds the function `HealthKeys::read`, which fills in a struct: every key that is not read `by hand` is the field of
/// its name, read by its kind or by the function after `=>`, and all of them are read even if one is invalid. Further parameters
/// follow `table`. Before that come the statements `after { … }`, and `with { … }` has further fields. `mistaken` names the list of
/// `keys::mistaken` that belongs to the table, and `[own table]` gives it a table of its own in the documentation.
macro_rules! keys {
    (
        $(#[$meta:meta])*
        $Keys:ident $([own $own:ident])? {
            $(
                $(#[doc = $doc:expr])+
                $name:ident $(($key:literal))?: $kind:ty
                $(= $toml:tt)? $(, required $example:tt)? $(, or $words:literal)? $(=> $read:expr)? $(, by $hand:ident)?;
            )+
        }
        $(mistaken $mistaken:ident)?
        $(
            reads $Spec:ident ($table:ident $(, $arg:ident: $Arg:ty)*)
            $(after { $($after:tt)* })? $(with { $($with:tt)* })?
        )?
    ) => {
        $(#[$meta])*
        pub enum $Keys {}

        const _: () = {
            #[allow(clippy::wildcard_imports, reason = "each table uses others of them")]
            use $crate::config::keys::kinds::*;
            use $crate::config::keys::{Default, ConfigKey, DeclaredKeys, TableKeys};
            use $crate::config::table;

            static KEYS: TableKeys = TableKeys {
                all: &[$(ConfigKey {
                    name: keys!(@name $name $($key)?),
                    kind: <$kind as Kinded>::KIND,
                    default: keys!(@default ($name $($key)?) $(= $toml)? $(, required $example)? $(, or $words)?),
                    doc: &[$($doc),+],
                }),+],
                has_own_table: keys!(@own $($own)?),
                mistaken: keys!(@mistaken $($mistaken)?),
            };

            impl DeclaredKeys for $Keys {
                const KEYS: &'static TableKeys = &KEYS;
            }

            impl<'a> table::Table<'a, $Keys> {
                $(pub fn $name(
                    &self,
                ) -> table::Field<'_, 'a, $kind, keys!(@presence $(= $toml)? $(, required $example)? $(, or $words)?)> {
                    let presence = keys!(@value ($name $($key)?) $(= $toml)? $(, required $example)? $(, or $words)?);
                    table::Field::new(self, keys!(@name $name $($key)?), presence)
                })+
            }
        };

        keys!(
            @reads $Keys [$($Spec ($table $(, $arg: $Arg)*) { $($($after)*)? } { $($($with)*)? })?] []
            $({ $name $(=> $read)? $(, by $hand)? })+
        );
    };

    (@name $name:ident) => { stringify!($name) };
    (@name $name:ident $key:literal) => { $key };

    (@default $name:tt = $toml:tt) => { Default::Toml(stringify!($toml)) };
    (@default ($($name:tt)+), required $example:tt) => {
        Default::Required(concat!(keys!(@name $($name)+), " = ", stringify!($example)))
    };
    (@default $name:tt, or $words:literal) => { Default::Words($words) };
    (@default $name:tt) => { Default::Words("none") };

    (@presence = $($rest:tt)+) => { table::Defaulted };
    (@presence , required $example:tt) => { table::Required };
    (@presence $($rest:tt)*) => { table::Optional };

    (@value $name:tt = $toml:tt $($rest:tt)*) => {{
        static DEFAULT: table::DefaultValue =
            table::DefaultValue::new(|| table::default_value(stringify!($toml)));
        table::Defaulted(&DEFAULT)
    }};
    (@value ($($name:tt)+), required $example:tt) => {
        table::Required(concat!(keys!(@name $($name)+), " = ", stringify!($example)))
    };
    (@value $($rest:tt)*) => { table::Optional };

    (@own) => { false };
    (@own table) => { true };
    (@mistaken) => { &[] };
    (@mistaken $mistaken:ident) => { $crate::config::keys::mistaken::$mistaken };

    (@reads $Keys:ident [] $($rest:tt)*) => {};
    (@reads $Keys:ident $reads:tt [$($filled:tt)*] { $name:ident, by hand } $($rest:tt)*) => {
        keys!(@reads $Keys $reads [$($filled)*] $($rest)*);
    };
    (@reads $Keys:ident $reads:tt [$($filled:tt)*] { $name:ident => $read:expr, by hand } $($rest:tt)*) => {
        compile_error!("a key that is read by hand has no function");
    };
    (@reads $Keys:ident $reads:tt [$($filled:tt)*] $entry:tt $($rest:tt)*) => {
        keys!(@reads $Keys $reads [$($filled)* $entry] $($rest)*);
    };
    (
        @reads $Keys:ident
        [$Spec:ident ($table:ident $(, $arg:ident: $Arg:ty)*) { $($after:tt)* } { $($with:tt)* }]
        [$({ $name:ident $(=> $read:expr)? })*]
    ) => {
        impl $Keys {
            /// Fills in the struct; `None` if a key is invalid, which has been reported.
            pub fn read(
                $table: &$crate::config::table::Table<'_, Self>,
                $($arg: $Arg),*
            ) -> Option<$Spec> {
                $($after)*
                $(let $name = keys!(@field $table $name $($read)?);)*
                Some($Spec {
                    $($name: $crate::config::table::Filled::filled($name)?,)*
                    $($with)*
                })
            }
        }
    };
    (@field $table:ident $name:ident) => { $table.$name().read() };
    (@field $table:ident $name:ident $read:expr) => { $table.$name().with($read) };
}
pub(in crate::config) use keys;
