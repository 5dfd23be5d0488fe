//! The pages of an installation's life: their commands name what exists, and each block of them is run by the rehearsal or
//! says why it isn't.

#![expect(clippy::unwrap_used, clippy::panic, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeSet;

use serde_json::Value;
use tenon_region::yaml;
use tenon_structure_tests::{document, read, root};

const INSTALL: &str = "docs/install.md";
const PAGES: [&str; 4] = [INSTALL, "docs/upgrade.md", "docs/restore.md", "docs/remove.md"];
/// Begins the comment above a block that nothing plays; the reason follows.
const MARK: &str = "<!-- not run: ";
/// Pages whose other blocks are all run, and by what, which says of single commands why it doesn't type them.
const RUNNERS: [(&str, &str); 3] = [
    (INSTALL, "tests/deploy/tests/rehearsal/install.rs"),
    ("docs/restore.md", "tests/deploy/tests/rehearsal/restore.rs"),
    ("docs/remove.md", "tests/deploy/tests/rehearsal/remove.rs"),
];
/// The two ways to a cluster, each with the commands that a reader types with it.
const FORMS: [(&str, usize); 2] = [("A new cluster", 17), ("An existing cluster", 19)];
/// Commands of common sections that only a cluster that was there needs: how each begins.
const OF_EXISTING: [&str; 2] = ["kubectl scale deployment karpenter", "kubectl apply --server-side"];
/// Sections after the first node, and one whose commands stand for others.
const LATER: [&str; 2] = ["Coming from Karpenter", "From a release"];
const COMMANDS_MOST: usize = 19;
/// The longest name of a queue. Source: SQS API Reference, `CreateQueue`, read 2026-11.
const LONGEST_QUEUE: usize = 80;
/// The longest name of an alarm. Source: CloudWatch API Reference, `PutMetricAlarm`, read 2026-11.
const LONGEST_ALARM: usize = 255;
/// A template, and what its copy is named on a page.
const COPIES: [(&str, &str); 1] = [("target/cluster-retain.yaml", "infra/cluster.yaml")];

/// A block of commands.
#[derive(Debug, Default, PartialEq)]
struct CommandBlock {
    section: String,
    /// Why nothing plays it.
    reason: Option<String>,
    commands: Vec<String>,
}

/// The blocks of commands of a page. A command's further lines are its own.
fn blocks(text: &str) -> Vec<CommandBlock> {
    let (mut found, mut section, mut before): (Vec<CommandBlock>, String, &str) =
        (Vec::new(), String::new(), "");
    let mut open: Option<CommandBlock> = None;
    for line in text.lines() {
        match open.as_mut() {
            Some(_) if line == "```" => found.extend(open.take()),
            Some(block) => {
                if let Some(command) = line.strip_prefix("$ ") {
                    block.commands.push(command.to_owned());
                } else if let Some(last) = block.commands.last_mut() {
                    last.extend(["\n", line]);
                } else {
                    panic!("a block of `{section}` begins with `{line}` instead of a command");
                }
            }
            None if line == "```console" => {
                let reason = before.strip_prefix(MARK).and_then(|rest| rest.strip_suffix(" -->"));
                let reason = reason.map(str::to_owned);
                open = Some(CommandBlock { section: section.clone(), reason, ..CommandBlock::default() });
            }
            None => {
                if let Some(heading) = line.strip_prefix("## ") {
                    heading.clone_into(&mut section);
                }
                before = line;
            }
        }
    }
    found
}

fn commands(page: &str) -> Vec<String> {
    blocks(&read(page)).into_iter().flat_map(|block| block.commands).collect()
}

/// The letters, digits and no more with which a text begins.
fn name(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric()).next().unwrap_or_default()
}

/// The template that a command deploys, if it deploys one.
fn template(command: &str) -> Option<&str> {
    if command.starts_with("sam deploy") {
        return Some("template.yaml");
    }
    let path = command.split_once("--template-file ")?.1.split_whitespace().next()?;
    Some(COPIES.iter().find(|(copy, _)| *copy == path).map_or(path, |copy| copy.1))
}

/// The parameters that a deployment sets: `Name=...`, and those that a query prints.
fn parameters(command: &str) -> BTreeSet<&str> {
    let Some((_, set)) = command.split_once("--parameter-overrides") else { return BTreeSet::new() };
    let given = set.split_whitespace().filter(|word| name(word).starts_with(char::is_uppercase));
    let given = given.filter(|word| word.strip_prefix(name(word)).is_some_and(|rest| rest.starts_with('=')));
    let printed = set.split("join('=', ['").skip(1);
    given.chain(printed).map(name).collect()
}

/// The keys of an object of a document.
fn keys(value: &Value) -> BTreeSet<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn a_block_has_its_section_its_reason_and_its_commands() {
    let text = "# A\n\n## B\n\n<!-- not run: needs C -->\n```console\n$ d \\\n    e\n$ f\n```\n\n```console\n$ g\n```\n";
    let block = |reason: Option<&str>, commands: &[&str]| CommandBlock {
        section: "B".to_owned(),
        reason: reason.map(str::to_owned),
        commands: commands.iter().map(|command| (*command).to_owned()).collect(),
    };
    assert_eq!(blocks(text), [block(Some("needs C"), &["d \\\n    e", "f"]), block(None, &["g"])]);
}

#[test]
fn every_block_is_run_or_says_why_it_isnt() {
    let mut wrong = Vec::new();
    for page in PAGES {
        let is_run = RUNNERS.iter().any(|(of, by)| *of == page && root().join(by).exists());
        for block in blocks(&read(page)) {
            let first = block.commands.first().map(String::as_str).unwrap_or_default();
            match &block.reason {
                Some(reason) if !reason.is_empty() => {}
                None if is_run => {}
                reason => wrong.push(format!("{page}, {}: {reason:?}: {first}", block.section)),
            }
        }
    }
    assert!(wrong.is_empty(), "blocks without a runner, or with an empty mark: {wrong:#?}");
}

#[test]
fn an_installation_takes_as_many_commands_as_its_page_says() {
    let text = read(INSTALL);
    let blocks = blocks(&text);
    for (form, said) in FORMS {
        let other = |section: &str| FORMS.iter().any(|(name, _)| *name == section && *name != form);
        let of_form =
            blocks.iter().filter(|block| !other(&block.section) && !LATER.contains(&block.section.as_str()));
        let is_typed = |command: &&String| {
            form == "An existing cluster" || !OF_EXISTING.iter().any(|begin| command.starts_with(begin))
        };
        let typed = of_form.flat_map(|block| &block.commands).filter(is_typed).count();
        assert!(blocks.iter().any(|block| block.section == form), "{INSTALL} has no section `{form}`");
        assert_eq!(typed, said, "{form}");
        assert!(typed <= COMMANDS_MOST, "{form} takes {typed} commands");
    }
    assert!(text.contains("with 17 commands, or in one that you\nhave with 19 at most"), "{INSTALL}");
    assert!(read("README.md").contains("with 17 commands"));
}

#[test]
fn parameters_of_the_pages_are_the_templates() {
    let mut deployed = BTreeSet::new();
    for page in PAGES {
        for command in commands(page) {
            let Some(path) = template(&command) else { continue };
            let stack = document(path);
            let known = keys(&stack["Parameters"]);
            let unknown: Vec<&str> =
                parameters(&command).into_iter().filter(|name| !known.contains(name)).collect();
            assert!(unknown.is_empty(), "{page}: {path} has no parameters {unknown:?}");
            deployed.insert(path.to_owned());
        }
    }
    let all = ["template.yaml", "infra/access-entry.yaml", "infra/cluster.yaml", "infra/pod-identity.yaml"];
    assert_eq!(deployed, BTreeSet::from(all.map(str::to_owned)));
}

#[test]
fn the_page_gives_every_parameter_without_a_default() {
    for command in commands(INSTALL) {
        let Some(path) = template(&command) else { continue };
        let stack = document(path);
        let (given, known) = (parameters(&command), stack["Parameters"].as_object().unwrap());
        let needed = known.iter().filter(|(_, parameter)| parameter["Default"].is_null());
        let missing: Vec<&String> =
            needed.map(|(name, _)| name).filter(|name| !given.contains(name.as_str())).collect();
        assert!(missing.is_empty(), "{INSTALL} deploys {path} without {missing:?}");
    }
}

#[test]
fn parameters_and_outputs_in_the_text_exist() {
    let stacks: Vec<Value> =
        ["template.yaml", "infra/cluster.yaml", "infra/access-entry.yaml", "infra/pod-identity.yaml"]
            .map(document)
            .into();
    let known: BTreeSet<&str> = stacks.iter().flat_map(|stack| keys(&stack["Parameters"])).collect();
    let outputs: BTreeSet<&str> = stacks
        .iter()
        .filter(|stack| stack["Outputs"].is_object())
        .flat_map(|stack| keys(&stack["Outputs"]))
        .collect();
    for page in PAGES {
        let text = read(page);
        let prose = text.lines().filter(|line| !line.starts_with("$ ") && !line.starts_with(' '));
        for code in prose.flat_map(|line| line.split('`').skip(1).step_by(2)) {
            let Some((before, _)) = code.split_once('=') else { continue };
            let is_parameter = before == name(before) && before.starts_with(char::is_uppercase);
            assert!(!is_parameter || known.contains(before), "{page}: no stack has a parameter `{before}`");
        }
        for output in text.split("OutputKey=='").skip(1).map(name) {
            assert!(outputs.contains(output), "{page}: no stack has an output `{output}`");
        }
    }
}

/// An import that leaves a parameter out sets it to its default.
#[test]
fn the_import_of_a_table_keeps_every_other_parameter() {
    let stack = document("template.yaml");
    let import = commands("docs/restore.md").into_iter().find(|command| command.contains("-type IMPORT"));
    let import = import.unwrap();
    let (_, rest) = import.split_once("UsePreviousValue=true ' \\\n").unwrap();
    let kept: BTreeSet<&str> = rest.split(')').next().unwrap().split_whitespace().collect();
    assert_eq!(kept, keys(&stack["Parameters"]));
}

/// Those stop during the switch, and the functions of another installation go on.
#[test]
fn the_restores_page_names_each_function_with_a_queue() {
    let stack = document("template.yaml");
    let resources = stack["Resources"].as_object().unwrap().values();
    let polling = resources.filter(|resource| resource["Properties"]["Events"]["Queue"].is_object());
    let names = polling.map(|function| function["Properties"]["FunctionName"]["Fn::Sub"].as_str().unwrap());
    let names: BTreeSet<&str> = names.map(|name| name.strip_prefix("${Installation}-").unwrap()).collect();
    let commands = commands("docs/restore.md");
    let list = commands.iter().find_map(|command| command.strip_prefix("mappings=$(for function in "));
    let listed: BTreeSet<&str> = list.unwrap().split(';').next().unwrap().split_whitespace().collect();
    assert_eq!(listed, names);
}

#[test]
fn values_of_the_pages_are_the_charts() {
    let values = document("infra/chart/values.yaml");
    let chart = document("infra/chart/Chart.yaml");
    let release = chart["appVersion"].as_str().unwrap();
    let mut set = BTreeSet::new();
    for page in PAGES {
        let text = read(page);
        // The chart's schema wants a text, and Helm takes a name of digits for a number.
        assert!(!text.contains("--set cluster="), "{page}: Helm reads a cluster's name by `--set-string`");
        let given = text.split("--set").skip(1).filter_map(|rest| rest.split('=').next());
        for path in given.map(|given| given.trim_start_matches("-string").trim_start()) {
            let mut parts = path.split('.');
            let first = parts.next().unwrap();
            assert!(!values[first].is_null(), "{page}: the chart has no value `{first}`");
            // A backslash is a dot within a name, such as a label's.
            let second = parts.next().filter(|second| !second.ends_with('\\'));
            assert!(second.is_none_or(|second| !values[first][second].is_null()), "{page}: `{path}`");
            set.insert(first.to_owned());
        }
        for pushed in text.split("$IMAGE:").skip(1) {
            assert!(pushed.starts_with(release), "{page}: the chart's release is {release}");
        }
    }
    let needed = ["cluster", "region", "queue", "image"].map(str::to_owned);
    assert!(needed.iter().all(|name| set.contains(name)), "{set:?}");
}

/// The name of its agent's queue is the installation's, a word and the cluster's.
#[test]
fn the_page_and_the_stack_say_how_long_a_clusters_name_may_be() {
    let stack = document("infra/cluster.yaml");
    let resources = stack["Resources"].as_object().unwrap();
    let rest = |name: &Value| {
        let name = name["Fn::Sub"].as_str().unwrap();
        name.replace("${Installation}", "tenon").replace("${Cluster}", "").len()
    };
    let most = LONGEST_QUEUE - rest(&resources["AgentQueue"]["Properties"]["QueueName"]);
    let said = format!("a cluster's name of at most {most} characters");
    assert!(read(INSTALL).contains(&said), "{INSTALL} doesn't say `{said}`");
    let parameter = &stack["Parameters"]["Cluster"];
    let pattern = parameter["AllowedPattern"].as_str().unwrap();
    assert!(pattern.ends_with(&format!("{{0,{}}}", most - 1)), "{pattern}");
    let told = parameter["ConstraintDescription"].as_str().unwrap();
    assert!(told.contains(&format!("at most {most} characters")), "{told}");
    for schedule in resources.values().filter(|resource| resource["Type"] == "AWS::Scheduler::Schedule") {
        assert!(schedule["Properties"]["Name"].is_null(), "{schedule}: a name has 64 characters");
    }
    let alarms = resources.values().filter(|resource| resource["Type"] == "AWS::CloudWatch::Alarm");
    for alarm in alarms {
        let name = &alarm["Properties"]["AlarmName"];
        assert!(rest(name) + most <= LONGEST_ALARM, "{name}");
    }
}

/// Whoever raises the version says on the page which releases may follow which.
#[test]
fn the_upgrades_page_says_the_version_that_is_written() {
    let form = read("shared/table/src/items/form.rs");
    let written = form.split_once("pub const VERSION_WRITTEN: u64 = ").unwrap().1.split(';').next().unwrap();
    let said = format!("All releases write version {written} so far");
    let page = read("docs/upgrade.md").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(page.contains(&said), "docs/upgrade.md doesn't say `{said}`");
}

#[test]
fn files_of_the_pages_exist() {
    let mut missing = Vec::new();
    for page in PAGES {
        let commands = commands(page);
        let words = commands.iter().flat_map(|command| command.split_whitespace());
        let files = words.filter(|word| ["infra/", "tests/", "docs/"].iter().any(|at| word.starts_with(at)));
        missing
            .extend(files.filter(|file| !root().join(file).exists()).map(|file| format!("{page}: {file}")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The sample's class asks for what the page's stack allows.
#[test]
fn the_sample_fits_the_cluster_of_the_page() {
    let page = commands(INSTALL).join("\n").replace("$CLUSTER", "prod");
    let sample = read("infra/samples/nodepool.yaml");
    let (pool, class) = sample.split_once("\n---\n").unwrap();
    let (pool, class) = (yaml::parse(pool).unwrap(), yaml::parse(class).unwrap());
    let node_class = &pool["spec"]["template"]["spec"]["nodeClassRef"];
    assert_eq!((&node_class["kind"], &node_class["name"]), (&class["kind"], &class["metadata"]["name"]));
    let role = class["spec"]["role"].as_str().unwrap();
    assert!(page.contains(&format!("NodeRole1={role} ")), "the stack doesn't allow the role {role}");
    assert!(page.contains(&format!("--role-name {role} ")), "nothing makes the role {role}");
    // A cluster's name of digits stays a text in them.
    assert!(sample.matches(": \"prod\"\n").count() == 2, "{sample}");
    for (terms, parameter) in
        [("subnetSelectorTerms", "SubnetTags"), ("securityGroupSelectorTerms", "SecurityGroupTags")]
    {
        for (key, value) in class["spec"][terms][0]["tags"].as_object().unwrap() {
            let value = value.as_str().unwrap();
            assert!(page.contains(&format!("{parameter}={key}={value}")), "{terms}");
            assert!(page.contains(&format!("Key={key},Value={value}")), "{terms}");
        }
    }
    let deployment = yaml::parse(&read("infra/samples/inflate.yaml")).unwrap();
    let selector = &deployment["spec"]["template"]["spec"]["nodeSelector"];
    assert_eq!(selector["karpenter.sh/nodepool"], pool["metadata"]["name"]);
}
