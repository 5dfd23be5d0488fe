//! The stacks: the required parts of each function and each queue, and their description in docs/deploy.md.

#![expect(clippy::unwrap_used, reason = "helpers of an integration test fail as tests do")]

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use tenon_region::wiring::{QueueKind, Wiring};
use tenon_region::yaml;
use tenon_runtime::batch::RECEIVES_LEAST;
use tenon_structure_tests::{document, read, root};

const STACKS: [&str; 6] = [
    "template.yaml",
    "infra/cluster.yaml",
    "infra/pod-identity.yaml",
    "infra/access-entry.yaml",
    "infra/pipeline.yaml",
    "infra/dashboard.yaml",
];

/// Names and properties of the resources of a type.
fn of_kind<'a>(stack: &'a Value, kind: &str) -> Vec<(&'a str, &'a Value)> {
    let resources = stack["Resources"].as_object().unwrap().iter();
    let of = resources.filter(|(_, resource)| resource["Type"] == kind);
    of.map(|(name, resource)| (name.as_str(), &resource["Properties"])).collect()
}

fn attribute(value: &Value) -> &str {
    value["Fn::GetAtt"].as_str().unwrap_or_default()
}

/// Keeps a cluster that ends invocations from losing other clusters' messages. An asynchronous invocation has one event.
#[test]
fn messages_come_back_often_enough_to_find_out_who_ends_invocations() {
    for (function, queue) in Wiring::built_in().unwrap().queues {
        let alone = queue.kind == QueueKind::Invocations || function.as_str() == "interruption";
        assert!(queue.max_receive_count >= RECEIVES_LEAST || alone, "{function}");
    }
}

#[test]
fn every_function_is_built_logs_and_keeps_what_it_gave_up_on() {
    let stack = document("template.yaml");
    let functions = of_kind(&stack, "AWS::Serverless::Function");
    let mut built = BTreeSet::new();
    for (name, function) in &functions {
        let own = name.trim_end_matches("Function");
        let folder = function["CodeUri"].as_str().unwrap();
        let folder = folder.strip_prefix("target/functions/").and_then(|f| f.strip_suffix('/')).unwrap();
        assert!(
            root().join(format!("functions/{folder}/src/main.rs")).exists(),
            "{name}: nothing builds `{folder}`"
        );
        built.insert(folder.to_owned());
        assert_eq!(attribute(&function["Role"]), format!("{own}Role.Arn"), "{name} has its own role");
        assert_eq!(function["LoggingConfig"]["LogGroup"]["Ref"], format!("{own}Logs"), "{name}");
        let kept = &function["EventInvokeConfig"]["DestinationConfig"]["OnFailure"]["Destination"];
        // Of a function with a queue only an operator's invocation is asynchronous, and of `registry` CloudFormation's.
        assert_eq!(attribute(kept), "ExecutionDeadLetters.Arn", "{name}");
        assert!(
            function["ReservedConcurrentExecutions"].is_null(),
            "{name} takes from the account's concurrency"
        );
    }
    let folders = fs::read_dir(root().join("functions")).unwrap().map(|entry| entry.unwrap().file_name());
    let folders: BTreeSet<String> = folders.map(|name| name.to_string_lossy().into_owned()).collect();
    assert_eq!(built, folders, "functions of the stack and of the checkout");
    for (name, logs) in of_kind(&stack, "AWS::Logs::LogGroup") {
        assert!(!logs["RetentionInDays"].is_null(), "{name} is kept for ever");
    }
}

/// A creation that comes after its stack's rollback would leave an entry that no stack deletes.
#[test]
fn no_attempt_of_the_registry_outlives_cloudformations_wait() {
    let (region, cluster) = (document("template.yaml"), document("infra/cluster.yaml"));
    let function = &region["Resources"]["RegistryFunction"]["Properties"];
    let seconds = |value: &Value| value.as_u64().unwrap();
    let begins = seconds(&function["EventInvokeConfig"]["MaximumEventAgeInSeconds"]);
    let ends = begins + seconds(&function["Timeout"]);
    let waits = seconds(&cluster["Resources"]["Registry"]["Properties"]["ServiceTimeout"]);
    assert!(ends < waits, "the last attempt ends after {ends} s, and CloudFormation waits for {waits} s");
}

#[test]
fn what_fails_ends_in_a_queue_that_an_alarm_looks_at() {
    let stack = document("template.yaml");
    let alarmed: BTreeSet<&str> = of_kind(&stack, "AWS::CloudWatch::Alarm")
        .into_iter()
        .filter(|(_, alarm)| alarm["MetricName"] == "ApproximateNumberOfMessagesVisible")
        .map(|(_, alarm)| attribute(&alarm["Dimensions"][0]["Value"]))
        .collect();
    let mut sources = BTreeSet::new();
    for (name, queue) in of_kind(&stack, "AWS::SQS::Queue") {
        assert_eq!(queue["SqsManagedSseEnabled"], true, "{name}");
        if name.ends_with("DeadLetters") {
            assert!(alarmed.contains(format!("{name}.QueueName").as_str()), "no alarm watches {name}");
            assert_eq!(queue["MessageRetentionPeriod"], 1_209_600, "{name}");
        } else {
            let redrive = attribute(&queue["RedrivePolicy"]["deadLetterTargetArn"]);
            assert_eq!(redrive, "DeadLetters.Arn", "{name}");
            sources.insert(queue["QueueName"]["Fn::Sub"].as_str().unwrap());
        }
    }
    let shared = &stack["Resources"]["DeadLetters"]["Properties"]["RedriveAllowPolicy"];
    let allowed = shared["sourceQueueArns"].as_array().unwrap().iter();
    let allowed: BTreeSet<&str> =
        allowed.map(|arn| arn["Fn::Sub"].as_str().unwrap().rsplit(':').next().unwrap()).collect();
    // A policy takes ten. Source: SQS API Reference, `SetQueueAttributes`, read 2026-11.
    assert!(allowed == sources && allowed.len() <= 10, "{allowed:?} isn't {sources:?}");
    for (name, rule) in of_kind(&stack, "AWS::Events::Rule") {
        for target in rule["Targets"].as_array().into_iter().flatten() {
            assert_eq!(attribute(&target["DeadLetterConfig"]["Arn"]), "DeliveryDeadLetters.Arn", "{name}");
        }
    }
}

/// One queue has messages of many functions, so whoever is told gets the command that names the function.
#[test]
fn an_alarm_of_dead_letters_says_how_to_look_at_them() {
    let stack = document("template.yaml");
    for (name, alarm) in of_kind(&stack, "AWS::CloudWatch::Alarm") {
        let Some(queue) = name.strip_suffix("Alarm").filter(|queue| queue.ends_with("DeadLetters")) else {
            continue;
        };
        let told = alarm["AlarmDescription"]["Fn::Sub"].as_str().unwrap();
        let command = format!("aws sqs receive-message --queue-url ${{{queue}}} ");
        assert!(told.contains(&command), "{name} doesn't say `{command}`: {told}");
        let by_source = told.contains("--message-system-attribute-names DeadLetterQueueSourceArn");
        assert_eq!(by_source, queue == "DeadLetters", "{name}: {told}");
    }
}

/// An event of any other source could say anything: the code trusts what its rules and schedules deliver.
#[test]
fn a_function_takes_events_of_the_stacks_own_rules_alone() {
    let stack = document("template.yaml");
    let mut delivered = BTreeSet::new();
    for (name, rule) in of_kind(&stack, "AWS::Events::Rule") {
        let targets =
            rule["Targets"].as_array().into_iter().flatten().map(|target| attribute(&target["Arn"]));
        let invoked = targets.filter_map(|arn| arn.strip_suffix("Function.Arn"));
        delivered.extend(invoked.map(|function| (format!("{function}Function"), format!("{name}.Arn"))));
    }
    assert!(!delivered.is_empty());
    let permissions = of_kind(&stack, "AWS::Lambda::Permission");
    let mut allowed = BTreeSet::new();
    for (name, permission) in &permissions {
        assert_eq!(permission["Principal"], "events.amazonaws.com", "{name}");
        assert_eq!(permission["Action"], "lambda:InvokeFunction", "{name}");
        let function = permission["FunctionName"]["Ref"].as_str().unwrap().to_owned();
        allowed.insert((function, attribute(&permission["SourceArn"]).to_owned()));
    }
    assert_eq!(allowed, delivered);
    assert_eq!(permissions.len(), allowed.len());
}

/// Scheduler gives up on a target after a day, unseen, unless a schedule says otherwise. A cluster's schedules use the
/// region's queue, which has the alarm, by its name.
#[test]
fn a_schedule_that_fails_tells_the_regions_queue() {
    let region = document("template.yaml");
    let queue = &region["Resources"]["DeliveryDeadLetters"]["Properties"]["QueueName"]["Fn::Sub"];
    let named = format!(
        "arn:${{AWS::Partition}}:sqs:${{AWS::Region}}:${{AWS::AccountId}}:{}",
        queue.as_str().unwrap()
    );
    for path in ["template.yaml", "infra/cluster.yaml"] {
        let stack = document(path);
        let schedules = of_kind(&stack, "AWS::Scheduler::Schedule");
        assert!(schedules.len() >= 3, "{path}");
        for (name, schedule) in schedules {
            let target = &schedule["Target"];
            let dead_letters = &target["DeadLetterConfig"]["Arn"];
            let kept =
                attribute(dead_letters) == "DeliveryDeadLetters.Arn" || dead_letters["Fn::Sub"] == named;
            assert!(kept, "{path}, {name}: {dead_letters}");
            assert_eq!(target["RetryPolicy"]["MaximumRetryAttempts"], 3, "{path}, {name}");
        }
    }
}

/// EventBridge's quota "Number of rules" is 300 for a bus, and 100 in two regions.
#[test]
fn the_document_says_how_many_clusters_the_rules_of_a_bus_allow() {
    let rules = |path: &str, bus: &str| {
        let stack = document(path);
        let rules = of_kind(&stack, "AWS::Events::Rule");
        rules.iter().filter(|(_, rule)| rule["EventBusName"]["Ref"] == bus).count()
    };
    let of_cluster = rules("infra/cluster.yaml", "Installation");
    let of_region = rules("template.yaml", "Bus") + rules("infra/pipeline.yaml", "Installation");
    for (quota, clusters) in [(300, 280), (100, 80)] {
        assert!(of_region + clusters * of_cluster <= quota, "{clusters} clusters");
    }
    assert!(read("docs/deploy.md").contains("is enough for 280 and 80 clusters"));
}

/// A deployed function with this setting would answer a process beside it in place of CloudFormation.
#[test]
fn no_stack_sets_what_rehearsals_set() {
    for path in STACKS {
        assert!(!read(path).contains("TENON_REHEARSAL"), "{path}");
    }
    assert!(read("tests/servers/ministack").contains("TENON_REHEARSAL_ANSWERS="), "nor do rehearsals");
}

/// The stack can do without its table and take over another one, so nothing refers to the resource.
#[test]
fn the_table_is_known_by_its_name() {
    let bare =
        ["!GetAtt Table.", "!Ref Table\n", "table/${Installation}\"", "\"TableName\", \"${Installation}\"]"];
    for path in STACKS {
        let text = read(path);
        let wrong: Vec<&str> = bare.into_iter().filter(|bare| text.contains(bare)).collect();
        assert!(wrong.is_empty(), "{path}: {wrong:?}");
    }
    let stack = document("template.yaml");
    let table = &stack["Resources"]["Table"];
    assert_eq!(table["Properties"]["TableName"]["Fn::Sub"], "${Installation}${TableSuffix}");
    // Without both policies, an update would delete the table.
    assert_eq!(table["DeletionPolicy"], "Retain");
    assert_eq!(table["UpdateReplacePolicy"], "Retain");
    assert_eq!(stack["Parameters"]["TableSuffix"]["Default"], "", "names of stacks that exist stay");
    // What the restore page's `sed` leaves is the stack without the table.
    let text = read("template.yaml");
    let (before, table) = text.split_once("\n  Table:\n").unwrap();
    let without = yaml::parse(&format!("{before}\n{}", table.split_once("\n\n").unwrap().1)).unwrap();
    let mut expected = stack["Resources"].clone();
    expected.as_object_mut().unwrap().remove("Table");
    assert_eq!(without["Resources"], expected);
}

/// EC2's notice is two minutes: a failed message must come again many times within them.
#[test]
fn a_warning_that_failed_is_seen_again_at_once_and_often() {
    let stack = document("template.yaml");
    let of = |name: &str| &stack["Resources"][name]["Properties"];
    let (function, queue) = (of("InterruptionFunction"), of("InterruptionQueue"));
    let number = |value: &Value| value.as_u64().unwrap();
    let (timeout, visibility) = (number(&function["Timeout"]), number(&queue["VisibilityTimeout"]));
    assert!(timeout <= 10, "an invocation takes {timeout} s at most");
    assert_eq!(visibility, 15, "it outlasts the invocation, and is short");
    assert!(number(&queue["RedrivePolicy"]["maxReceiveCount"]) >= 10);
    let event = &function["Events"]["Queue"]["Properties"];
    assert!(event["MaximumBatchingWindowInSeconds"].is_null(), "nothing is waited for");
    // A person learns of a waiting message before its instance ends.
    let alarm = of("InterruptionWaitingAlarm");
    let heard = number(&alarm["Threshold"]) + number(&alarm["Period"]) * number(&alarm["EvaluationPeriods"]);
    assert!(heard <= 120, "the alarm rings after {heard} s");
}

#[test]
fn absence_is_the_alarm_where_success_is_counted() {
    for path in STACKS {
        let stack = document(path);
        for (name, alarm) in of_kind(&stack, "AWS::CloudWatch::Alarm") {
            // A cluster's sweeps are counted too, and their absence is worth a person's look.
            let counts = alarm["ComparisonOperator"] == "LessThanThreshold" || name == "AttentionAlarm";
            let missing = if counts { "breaching" } else { "notBreaching" };
            assert_eq!(alarm["TreatMissingData"], missing, "{path}, {name}");
        }
    }
}

/// The text after a marker, up to the first character that no Kubernetes name has.
fn named_after<'a>(text: &'a str, marker: &str) -> BTreeSet<&'a str> {
    let name = |rest: &'a str| rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').next();
    text.split(marker).skip(1).filter_map(name).filter(|name| !name.is_empty()).collect()
}

/// The stack trusts the pods of one service account in one namespace: an agent that is installed by the documents has to
/// be those.
#[test]
fn the_agent_is_installed_where_its_stack_trusts_it() {
    let trusted = |path: &str, name: &str| {
        let default = &document(path)["Parameters"][name]["Default"];
        default.as_str().unwrap_or_else(|| panic!("{path}: no default of `{name}`")).to_owned()
    };
    let namespace = trusted("infra/cluster.yaml", "AgentNamespace");
    let account = trusted("infra/cluster.yaml", "AgentServiceAccount");
    assert_eq!(trusted("infra/pod-identity.yaml", "AgentNamespace"), namespace);
    assert_eq!(trusted("infra/pod-identity.yaml", "AgentServiceAccount"), account);

    let mut installed = 0;
    let documents = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().file_name());
    let documents = documents.map(|name| format!("docs/{}", name.to_string_lossy()));
    for path in documents.chain(["README.md".to_owned()]).filter(|path| path.ends_with(".md")) {
        let text = read(&path);
        for command in text.split("$ ").filter(|command| command.starts_with("helm ")) {
            let given = named_after(command.split("```").next().unwrap(), "--namespace ");
            assert_eq!(given, BTreeSet::from([namespace.as_str()]), "{path}");
            installed += 1;
        }
        for given in text.split("system:serviceaccount:").skip(1) {
            assert!(given.starts_with(&format!("{namespace}:{account}`")), "{path}: {given:.40}");
        }
    }
    assert!(installed > 0, "no document says how the agent is installed");

    let rights = read("infra/chart/rbac.yaml");
    let mut used = named_after(&rights, "namespace: ");
    used.remove("kube-system");
    assert_eq!(used, BTreeSet::from([namespace.as_str()]), "infra/chart/rbac.yaml");
    let replaced = read("infra/chart/templates/rbac.yaml");
    assert!(replaced.contains(&format!("replace \"namespace: {namespace}\"")), "{replaced}");
    let runs_as = read("infra/chart/templates/agent.yaml");
    assert_eq!(named_after(&runs_as, "serviceAccountName: "), BTreeSet::from([account.as_str()]));
}

/// The launch role's right to pass node roles.
fn passes(stack: &Value) -> &Value {
    let place = "/Resources/LaunchRole/Properties/Policies/0/PolicyDocument/Statement/0";
    let statement = stack.pointer(place).unwrap_or(&Value::Null);
    assert_eq!(statement.get("Action").and_then(Value::as_str), Some("iam:PassRole"));
    statement
}

/// The same text names a role in both stacks; only a number of the cluster's stack may be empty.
#[test]
fn an_access_entry_names_its_role_as_the_clusters_stack_does() {
    let pattern = |path: &str, name: &str| {
        let pattern = &document(path)["Parameters"][name]["AllowedPattern"];
        pattern.as_str().unwrap_or_else(|| panic!("{path}: `{name}` takes everything")).to_owned()
    };
    let of_entry = pattern("infra/access-entry.yaml", "NodeRole");
    assert_eq!(pattern("infra/cluster.yaml", "NodeRole1"), format!("|{of_entry}"));
    let entry = document("infra/access-entry.yaml");
    let role = &entry["Resources"]["Entry"]["Properties"]["PrincipalArn"]["Fn::Sub"];
    let stack = document("infra/cluster.yaml");
    let passed = &passes(&stack)["Resource"][0]["Fn::If"][1]["Fn::Sub"];
    assert_eq!(role.as_str().unwrap().replace("NodeRole", "NodeRole1"), passed.as_str().unwrap());
}

/// Parameters become parts of a JSON text, which a quote would end.
#[test]
fn what_the_trust_of_an_agent_is_made_of_has_no_quotes() {
    let stack = document("infra/cluster.yaml");
    let trust = &stack["Resources"]["AgentRole"]["Properties"]["AssumeRolePolicyDocument"]["Fn::If"][1];
    let text = trust["Fn::Sub"].as_str().unwrap();
    let named = text.split("${").skip(1).filter_map(|rest| rest.split_once('}'));
    let named: BTreeSet<&str> = named.map(|(name, _)| name).filter(|name| !name.contains("::")).collect();
    assert_eq!(named, BTreeSet::from(["AgentNamespace", "AgentServiceAccount", "Cluster", "OidcProvider"]));
    for name in named {
        let pattern = stack["Parameters"][name]["AllowedPattern"].as_str();
        let pattern = pattern.unwrap_or_else(|| panic!("`{name}` takes everything"));
        // Outside of sets, where a dot is itself, a pattern takes no character but those it names.
        let outside: String = pattern.split('[').map(|part| part.rsplit(']').next().unwrap()).collect();
        assert!(!pattern.contains(['"', '\\', '^']) && !outside.contains('.'), "{name}: {pattern}");
    }
}

/// The same of tags in the rights of a launch role: a second `=` would make a third text of them.
#[test]
fn tags_of_a_clusters_network_have_no_quotes_and_one_equals_sign() {
    let stack = document("infra/cluster.yaml");
    let network = &stack["Resources"]["LaunchNetwork"]["Properties"]["PolicyDocument"]["Fn::Sub"][1];
    for (variable, name) in [("Subnets", "SubnetTags"), ("Groups", "SecurityGroupTags")] {
        assert!(network[variable].to_string().contains(name), "{variable}: {network}");
        assert_eq!(stack["Parameters"][name]["AllowedPattern"], r#"[^="\\$]+=[^="\\$]*"#, "{name}");
    }
}

/// Helm takes values that no schema knows only where the schema lets it; a reader looks for each in the agent's page.
#[test]
fn every_value_of_the_chart_has_a_schema_and_is_told() {
    let keys = |values: &Value| -> BTreeSet<String> { values.as_object().unwrap().keys().cloned().collect() };
    let values = document("infra/chart/values.yaml");
    let schema: Value = serde_json::from_str(&read("infra/chart/values.schema.json")).unwrap();
    let mut known = keys(&schema["properties"]);
    assert!(known.remove("global"), "Helm sets it");
    assert_eq!(known, keys(&values));
    for name in ["image", "serviceAccount", "resources", "networkPolicy", "serviceMonitor"] {
        assert_eq!(keys(&schema["properties"][name]["properties"]), keys(&values[name]), "{name}");
        assert_eq!(schema["properties"][name]["additionalProperties"], false, "{name}");
    }
    let document = read("docs/agent.md");
    let told = document.split("\n## ").find(|part| part.starts_with("Installing it")).unwrap();
    let rows = told.lines().filter(|line| line.starts_with("| `"));
    let told: Vec<&str> = rows.flat_map(|row| row.split('|').nth(1).unwrap().split('`')).collect();
    let is_told = |name: &String| {
        told.iter()
            .any(|text| *text == name || text.strip_prefix(name.as_str()).is_some_and(|t| t.starts_with('.')))
    };
    let missing: Vec<&String> = known.iter().filter(|name| !is_told(name)).collect();
    assert!(missing.is_empty(), "docs/agent.md doesn't name the values {missing:?}");
}

/// A template can't loop, so the parts of a role are written five times.
#[test]
fn every_numbered_node_role_has_the_parts_of_the_first() {
    let stack = document("infra/cluster.yaml");
    let numbers: Vec<String> = (1..=5).map(|number| number.to_string()).collect();
    let parts = |n: &str| {
        let parameter = |name: String| {
            let mut parameter = stack["Parameters"][&name].clone();
            assert!(parameter.as_object_mut().unwrap().remove("Description").is_some(), "{name}");
            parameter
        };
        let place = n.parse::<usize>().unwrap() - 1;
        let policy = passes(&stack);
        let parts = [
            parameter(format!("NodeRole{n}")),
            parameter(format!("NodeRole{n}Profile")),
            stack["Rules"]["NodesHaveRoles"]["Assertions"][0]["Assert"]["Fn::Or"][place].clone(),
            stack["Conditions"][format!("HasNodeRole{n}")].clone(),
            stack["Conditions"][format!("MakesInstanceProfile{n}")].clone(),
            stack["Resources"]["Registry"]["Properties"]["NodeRoles"][place].clone(),
            stack["Resources"][format!("NodeInstanceProfile{n}")].clone(),
            policy["Resource"][place].clone(),
        ];
        assert!(parts.iter().all(|part| !part.is_null()), "{n}: {parts:?}");
        // The numbers of the names alone: a length keeps its digits.
        ["NodeRole", "InstanceProfile"].iter().fold(serde_json::to_string(&parts).unwrap(), |text, name| {
            text.replace(&format!("{name}{n}"), &format!("{name}N"))
        })
    };
    for number in &numbers {
        assert_eq!(parts(number), parts("1"), "{number}");
    }
    let roles = stack["Parameters"].as_object().unwrap().keys().filter(|name| name.starts_with("NodeRole"));
    assert_eq!(roles.count(), 2 * numbers.len());
}

#[test]
fn the_state_outlives_its_stack() {
    let stack = document("template.yaml");
    let table = &stack["Resources"]["Table"];
    assert_eq!(
        (&table["DeletionPolicy"], &table["UpdateReplacePolicy"]),
        (&"Retain".into(), &"Retain".into())
    );
    let properties = &table["Properties"];
    assert_eq!(properties["DeletionProtectionEnabled"], true);
    assert_eq!(properties["PointInTimeRecoverySpecification"]["PointInTimeRecoveryEnabled"], true);
}

/// The bill has no KMS: table, queues and logs have keys of their services, which cost nothing.
#[test]
fn no_stack_asks_for_a_key_that_kms_bills() {
    for path in STACKS {
        let text = document(path).to_string();
        let asked: Vec<&str> =
            ["SSESpecification", "KmsMasterKeyId", "KmsKeyId", "KMSMasterKeyId", "KmsKeyArn"]
                .into_iter()
                .filter(|key| text.contains(key))
                .collect();
        assert!(asked.is_empty(), "{path}: {asked:?}");
    }
}

#[test]
fn the_deployment_document_names_every_stack_alarm_and_dead_letter_queue() {
    let page = read("docs/deploy.md");
    let told: BTreeSet<&str> = page.lines().flat_map(|line| line.split('`').skip(1).step_by(2)).collect();
    let mut missing = BTreeSet::new();
    for path in STACKS {
        if !page.contains(&format!("[{path}](../{path})")) {
            missing.insert(path.to_owned());
        }
        for (name, alarm) in of_kind(&document(path), "AWS::CloudWatch::Alarm") {
            let full = alarm["AlarmName"]["Fn::Sub"].as_str().unwrap().replace("${Cluster}", "<cluster>");
            let short = full.trim_start_matches("${Installation}-").to_owned();
            let of_function = short.ends_with("-waiting") && told.contains("<function>-waiting");
            if !of_function && !told.contains(short.as_str()) {
                missing.insert(format!("{name}: {short}"));
            }
        }
    }
    for (name, _) in document("template.yaml")["Parameters"].as_object().unwrap() {
        if !told.contains(name.as_str()) {
            missing.insert(name.clone());
        }
    }
    assert!(missing.is_empty(), "docs/deploy.md doesn't name {missing:?}");
    let alarms = |path: &str| of_kind(&document(path), "AWS::CloudWatch::Alarm").len();
    let sentence =
        format!("{} in a region, {} in a cluster", alarms("template.yaml"), alarms("infra/cluster.yaml"));
    let sentence = sentence.replace(", 1 in", ", one in");
    assert!(page.contains(&sentence), "docs/deploy.md doesn't say `{sentence}`");
}

/// AWS refuses them in the middle of a deployment: a table's name has at least 3 characters, each account has a bus
/// `default`, and logs are kept for some numbers of days alone.
#[test]
fn parameters_take_nothing_that_aws_refuses() {
    for path in ["template.yaml", "infra/cluster.yaml", "infra/dashboard.yaml", "infra/pipeline.yaml"] {
        let pattern = &document(path)["Parameters"]["Installation"]["AllowedPattern"];
        assert_eq!(pattern, "[a-z0-9-]{3,32}", "{path}");
    }
    let chart: Value = serde_json::from_str(&read("infra/chart/values.schema.json")).unwrap();
    assert_eq!(chart["properties"]["installation"]["pattern"], "^[a-z0-9-]{3,32}$");
    let region = document("template.yaml");
    let rule = &region["Rules"]["InstallationIsNoDefault"]["Assertions"][0]["Assert"];
    assert_eq!(rule["Fn::Not"][0]["Fn::Equals"][1], "default");
    let days = &region["Parameters"]["LogRetentionDays"];
    let allowed = days["AllowedValues"].as_array().unwrap();
    assert!(allowed.contains(&days["Default"]) && !allowed.iter().any(|day| day == 31), "{allowed:?}");
}
