//! Runs a program in an image, without a network: `engine IMAGE PROGRAM...`.

use std::error::Error;

use stackforge_engine::docker::Docker;
use stackforge_engine::{Cancel, RunRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let image = std::env::args()
        .nth(1)
        .ok_or("usage: engine IMAGE PROGRAM...")?;
    let docker = Docker::connect(None).await?;
    println!("{} at {}", docker.server(), docker.address());
    let request = RunRequest {
        image,
        cmd: std::env::args().skip(2).collect(),
        network: Some("none".to_owned()),
        output_limit: 1 << 16,
        ..RunRequest::default()
    };
    let mut line = |_, text: &str| println!("{text}");
    let ended = docker.run(request, &Cancel::new(), &mut line).await?;
    println!("it ended with {}", ended.exit_code);
    Ok(())
}
