//! Enums whose variants are one word each.

/// Declares enums whose variants each have one word: in the table, in manifests, on the command line.
///
/// A variant's word is its own name, or the literal after its `=`, so a variant and its word stand once. Each enum gets
/// the derives of a plain name, `ALL`, `as_str`, `parse` and `Display`: `strum`'s derives of the same are longer at each
/// enum, and have no array of all. An enum with data, which only needs its name, has `strum::IntoStaticStr`.
///
/// A word in the table may be of a later release. The variant after `else` is what such a word is taken for: the enum
/// then has `of_any_release`, which always has an answer.
///
/// ```
/// tenon_domain::words! {
///     /// A fruit.
///     pub enum Fruit {
///         /// Red or green.
///         Apple,
///         /// Its own gift.
///         PassionFruit = "passion-fruit",
///     }
/// }
///
/// assert_eq!(Fruit::ALL.map(Fruit::as_str), ["Apple", "passion-fruit"]);
/// assert_eq!(Fruit::parse("passion-fruit"), Some(Fruit::PassionFruit));
/// assert_eq!(Fruit::parse("apple"), None);
///
/// tenon_domain::words! {
///     /// A colour.
///     pub enum Colour else Red {
///         /// Of apples.
///         Red,
///         /// Of leaves.
///         Green,
///     }
/// }
///
/// assert_eq!(Colour::of_any_release("Green"), Colour::Green);
/// assert_eq!(Colour::of_any_release("Blue"), Colour::Red);
/// ```
#[macro_export]
macro_rules! words {
    (@ $variant:ident) => { stringify!($variant) };
    (@ $variant:ident $word:literal) => { $word };
    (@ any_release $visible:vis $name:ident) => {};
    (@ any_release $visible:vis $name:ident $later:ident) => {
        impl $name {
            /// The one of that word; an unknown word is of a later release.
            #[must_use]
            $visible fn of_any_release(word: &str) -> Self {
                Self::parse(word).unwrap_or(Self::$later)
            }
        }
    };
    ($(
        $(#[$about:meta])*
        $visible:vis enum $name:ident $(else $later:ident)? {
            $($(#[$about_variant:meta])* $variant:ident $(= $word:literal)?,)*
        }
    )*) => {$(
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        $visible enum $name { $($(#[$about_variant])* $variant,)* }

        #[allow(dead_code, reason = "an enum of one crate may need less")]
        impl $name {
            /// All of them, in the order of their declaration.
            $visible const ALL: [Self; [$(stringify!($variant)),*].len()] = [$(Self::$variant),*];

            /// Its word.
            #[must_use]
            $visible const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $crate::words!(@ $variant $($word)?),)* }
            }

            /// The one of that word.
            #[must_use]
            $visible fn parse(text: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.as_str() == text)
            }
        }

        $crate::words!(@ any_release $visible $name $($later)?);

        impl ::std::fmt::Display for $name {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.write_str(self.as_str())
            }
        }
    )*};
}
