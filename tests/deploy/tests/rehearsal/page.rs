//! The blocks of commands of a page, as lines for a shell.
//!
//! Decides which of them nobody runs: those below the comment that says why.

/// Begins the comment above a block that isn't run.
const MARK: &str = "<!-- not run: ";

/// A block that is run.
#[derive(Debug, PartialEq)]
pub(crate) struct PageBlock {
    /// The heading above it.
    pub(crate) section: String,
    /// Its lines, without the prompt.
    pub(crate) commands: String,
}

/// The blocks of a page without a mark, in order.
pub(crate) fn unmarked(page: &str) -> Vec<PageBlock> {
    let mut parts = page.split("```console\n");
    let mut before = parts.next().unwrap_or_default();
    let (mut found, mut section) = (Vec::new(), "");
    for part in parts {
        let (block, after) = part.split_once("```").expect("a block ends");
        section = before.lines().filter_map(|line| line.strip_prefix("## ")).next_back().unwrap_or(section);
        let is_marked = before.trim_end().lines().next_back().is_some_and(|line| line.starts_with(MARK));
        if !is_marked {
            let lines = block.lines().map(|line| line.strip_prefix("$ ").unwrap_or(line));
            let commands = lines.flat_map(|line| [line, "\n"]).collect();
            found.push(PageBlock { section: section.to_owned(), commands });
        }
        before = after;
    }
    found
}

#[test]
fn blocks_without_a_mark_are_run() {
    let page = "# P\n\n```console\n$ a \\\n    b\n$ c\n```\n\n## S\n\n<!-- not run: A -->\n```console\n$ no\n```\nB\n\n\
        ```console\n$ d\n```\n";
    let block = |section: &str, commands: &str| PageBlock {
        section: section.to_owned(),
        commands: commands.to_owned(),
    };
    assert_eq!(unmarked(page), [block("", "a \\\n    b\nc\n"), block("S", "d\n")]);
}
