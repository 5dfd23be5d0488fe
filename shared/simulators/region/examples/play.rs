//! Plays a scenario file, or a built-in scenario, and prints its transcript.
fn main() {
    let name = std::env::args().nth(1).unwrap_or_else(|| "tour".to_owned());
    let text = tenon_region::scenario::built_in(&name)
        .map(str::to_owned)
        .or_else(|| std::fs::read_to_string(&name).ok())
        .unwrap_or_default();
    match tenon_region::scenario::play_to_transcript(&text) {
        Ok(transcript) => println!("{}", transcript.0),
        Err(error) => eprintln!("{}", tenon_runtime::error::chain(&error)),
    }
}
