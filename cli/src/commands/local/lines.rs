//! The output of a run: a line for each happening, and the state at the end.

use serde::Serialize;
use tenon_domain::{SignedDuration, Timestamp};
use tenon_region::engine::SimulatedRegion;
use tenon_region::happening::{Happening, HappeningKind, for_people};

use super::region::LocalRegion;
use crate::args::Speed;
use crate::errors::Failure;
use crate::output::{self, Colour, Columns, OutputFormat, OutputReader};

/// Why the run ends, for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// It reached its end.
    Reached,
    /// It was stopped.
    Stopped,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct LocalSummary {
    kind: &'static str,
    settled: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    waiting_for: Vec<String>,
    pods: PodSummary,
    nodes: Vec<NodeSummary>,
    price_usd_per_hour: Option<String>,
}

#[derive(Debug, Serialize)]
struct PodSummary {
    running: usize,
    pending: usize,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct NodeSummary {
    name: String,
    instance_type: String,
    zone: String,
    capacity_type: String,
    pods: usize,
}

/// Where lines go.
pub(super) struct OutputLines {
    format: OutputFormat,
    colour: Colour,
    start: Timestamp,
}

impl OutputLines {
    /// Lines in a format, of a region that begins then.
    pub(super) fn new(format: OutputFormat, start: Timestamp) -> Self {
        Self { format, colour: Colour::of_stdout(), start }
    }

    /// The first lines, for people.
    pub(super) fn begin(
        &self,
        world: &LocalRegion,
        speed: Speed,
        port: Option<u16>,
    ) -> Result<OutputReader, Failure> {
        output::warn(&world.warnings);
        let pace = match speed {
            Speed::Max => "as fast as it goes".to_owned(),
            Speed::Times(times) => format!("{times} s of its time in each of yours"),
        };
        let serving = port.map_or(String::new(), |port| format!("; answers on 127.0.0.1:{port}"));
        let title = self.colour.paint("1", &world.scenario.title);
        self.people(&format!("{title}\nregion {}, {pace}{serving}\n\n", world.region_name))
    }

    /// The lines to print: all for scripts, news for people.
    pub(super) fn worth_telling(&self, happenings: Vec<Happening>) -> Vec<Happening> {
        match self.format {
            OutputFormat::Table => for_people(happenings),
            OutputFormat::Json | OutputFormat::Yaml => happenings,
        }
    }

    /// A line.
    pub(super) fn happened(&self, happening: &Happening) -> Result<OutputReader, Failure> {
        match self.format {
            OutputFormat::Table => output::write(&self.told(happening)),
            OutputFormat::Json => output::write(&format!("{}\n", happening.to_json())),
            OutputFormat::Yaml => {
                let document = output::document_text(OutputFormat::Yaml, &happening.to_json());
                output::write(&format!("---\n{document}"))
            }
        }
    }

    fn told(&self, happening: &Happening) -> String {
        let Happening { at, kind, subject, message, .. } = happening;
        let at = clock(at.duration_since(self.start));
        if *kind == HappeningKind::Note && subject == "scenario" {
            return format!("\n{at}  {}\n", self.colour.paint("1", message));
        }
        let style = match kind {
            HappeningKind::Event => "34",
            HappeningKind::Decision => "35",
            HappeningKind::Action => "33",
            HappeningKind::Node => "32",
            HappeningKind::Pod => "36",
            HappeningKind::Note => "1",
        };
        let kind = self.colour.paint(style, &format!("{:<8}", kind.as_str()));
        format!("{at}  {kind}  {subject:<30}  {message}\n")
    }

    /// Suggestions while the region runs.
    pub(super) fn what_next(
        &self,
        region: &SimulatedRegion,
        port: Option<u16>,
    ) -> Result<OutputReader, Failure> {
        let Some(port) = port else { return Ok(OutputReader::There) };
        let local =
            if port == crate::args::DEFAULT_PORT { "--local".to_owned() } else { format!("--local={port}") };
        let nodes: Vec<_> = region.sites().flat_map(|site| region.nodes(site.name())).collect();
        let mut text = format!(
            "\n{}\n",
            self.colour.paint("1", "That's it; the region stays up. In a second terminal, try:")
        );
        text += &format!("  tenon get claims {local}\n");
        if let Some(node) = nodes.first() {
            text += &format!("  tenon why node {} {local}\n", node.name);
        }
        let spot = region.sites().flat_map(|site| region.claims(site.name())).find_map(|claim| {
            let instance = claim.state.instance()?;
            (instance.capacity_type.as_str() == "spot").then(|| instance.id.to_string())
        });
        if let Some(instance) = spot {
            text += &format!("  tenon event spot-interruption {instance} {local}\n");
        }
        self.people(&(text + "Ctrl-C ends it.\n\n"))
    }

    /// How things stand in the end.
    pub(super) fn end(
        &self,
        region: &SimulatedRegion,
        unsettled: &[String],
        ending: Ending,
    ) -> Result<OutputReader, Failure> {
        let summary = LocalSummary::of(region, unsettled);
        match self.format {
            OutputFormat::Table => output::write(&self.ending(&summary, ending)),
            OutputFormat::Json => {
                let line = serde_json::to_string(&summary).unwrap_or_default();
                output::write(&format!("{line}\n"))
            }
            OutputFormat::Yaml => {
                output::write(&format!("---\n{}", output::document_text(OutputFormat::Yaml, &summary)))
            }
        }
    }

    fn ending(&self, summary: &LocalSummary, ending: Ending) -> String {
        let mut table = Columns::new(&["NODE", "TYPE", "ZONE", "CAPACITY", "PODS"]).right(&[4]);
        for node in &summary.nodes {
            let NodeSummary { name, instance_type, zone, capacity_type, pods } = node;
            let cells = [name, instance_type, zone, capacity_type].map(Clone::clone);
            table.row(cells.into_iter().chain([pods.to_string()]));
        }
        let state = match (summary.settled, ending) {
            (true, Ending::Reached | Ending::Stopped) => self.colour.paint("32", "settled"),
            (false, Ending::Reached) => {
                let left = format!("not settled: {}", summary.waiting_for.join("; "));
                self.colour.paint("31", &left)
            }
            (false, Ending::Stopped) => "stopped before it settled".to_owned(),
        };
        let PodSummary { running, pending } = summary.pods;
        let price = summary.price_usd_per_hour.as_deref().unwrap_or("?");
        let next = match ending {
            Ending::Reached => {
                "\nNext: `tenon local` stays up for `tenon get`, `why` and `event`; `tenon simulate -f FILE` plans for your own manifests\n"
            }
            Ending::Stopped => "",
        };
        format!(
            "\n{}\n{state}: {running} pods running, {pending} pending on {} nodes for {price} USD/h (spot prices are synthetic)\n{next}",
            table.text(),
            summary.nodes.len(),
        )
    }

    /// Text that is for people only.
    fn people(&self, text: &str) -> Result<OutputReader, Failure> {
        match self.format {
            OutputFormat::Table => output::write(text),
            OutputFormat::Json | OutputFormat::Yaml => Ok(OutputReader::There),
        }
    }
}

impl LocalSummary {
    fn of(region: &SimulatedRegion, unsettled: &[String]) -> Self {
        let mut pods = PodSummary { running: 0, pending: 0 };
        let mut nodes = Vec::new();
        for cluster in region.clusters() {
            let counts = region.pod_counts(cluster);
            pods.running += counts.running;
            pods.pending += counts.pending + counts.starting;
            nodes.extend(region.nodes(cluster).into_iter().map(|node| NodeSummary {
                name: node.name,
                instance_type: node.instance_type,
                zone: node.zone,
                capacity_type: node.capacity_type,
                pods: node.pods,
            }));
        }
        Self {
            kind: "summary",
            settled: unsettled.is_empty(),
            waiting_for: unsettled.to_vec(),
            pods,
            nodes,
            price_usd_per_hour: region.price().map(|price| price.to_string()),
        }
    }
}

fn clock(elapsed: SignedDuration) -> String {
    let seconds = elapsed.as_secs();
    format!("{:02}:{:02}:{:02}", seconds / 3600, seconds / 60 % 60, seconds % 60)
}
