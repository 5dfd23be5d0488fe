//! The blocks of commands of a page.
//!
//! Decides which of them nobody runs: those below the comment that says why.

/// Begins the comment above a block that isn't run; the reason follows.
const MARK: &str = "<!-- not run: ";

/// A block.
#[derive(Debug, PartialEq)]
pub(crate) struct PageBlock {
    /// The heading above it.
    pub(crate) section: String,
    /// Why nobody runs it.
    pub(crate) reason: Option<String>,
    /// Its commands without the prompt, each with its further lines.
    pub(crate) commands: Vec<String>,
}

/// The blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<PageBlock> {
    let mut parts = page.split("```console\n");
    let mut before = parts.next().unwrap_or_default();
    let (mut found, mut section) = (Vec::new(), "");
    for part in parts {
        let (block, after) = part.split_once("```").expect("a block ends");
        section = before.lines().filter_map(|line| line.strip_prefix("## ")).next_back().unwrap_or(section);
        let above = before.trim_end().lines().next_back().unwrap_or_default();
        let reason = above.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->"));
        found.push(PageBlock {
            section: section.to_owned(),
            reason: reason.map(str::to_owned),
            commands: commands(block),
        });
        before = after;
    }
    found
}

/// The blocks of a page without a mark, in order.
pub(crate) fn unmarked(page: &str) -> Vec<PageBlock> {
    blocks(page).into_iter().filter(|block| block.reason.is_none()).collect()
}

fn commands(block: &str) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    for line in block.lines() {
        if let Some(command) = line.strip_prefix("$ ") {
            found.push(command.to_owned());
        } else if let Some(last) = found.last_mut() {
            last.extend(["\n", line]);
        } else {
            panic!("a block begins with `{line}` instead of a command");
        }
    }
    found
}

#[test]
fn a_block_has_its_section_its_reason_and_its_commands() {
    let page = "# P\n\n```console\n$ a \\\n    b\n$ c\n```\n\n## S\n\n<!-- not run: A -->\n```console\n$ no\n```\nB\n\n\
        ```console\n$ d\n```\n";
    let block = |section: &str, reason: Option<&str>, commands: &[&str]| PageBlock {
        section: section.to_owned(),
        reason: reason.map(str::to_owned),
        commands: commands.iter().map(|command| (*command).to_owned()).collect(),
    };
    let (first, last) = (block("", None, &["a \\\n    b", "c"]), block("S", None, &["d"]));
    assert_eq!(blocks(page), [first, block("S", Some("A"), &["no"]), last]);
    let sections: Vec<String> = unmarked(page).into_iter().map(|block| block.section).collect();
    assert_eq!(sections, ["", "S"]);
}
