//! Says which engine answers and which images it has; `engine IMAGE COMMAND...` runs a container.

use std::error::Error;

use stackforge_engine::docker::Docker;
use stackforge_engine::{Cancel, RunRequest};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let docker = Docker::connect(None).await?;
    let info = docker.info().await?;
    println!("{} at {}", docker.server(), docker.address());
    println!("{} processors, {} bytes of memory", info.cpus, info.memory);

    let mut arguments = std::env::args().skip(1);
    let Some(image) = arguments.next() else {
        for name in docker.names().await? {
            println!("{name}");
        }
        return Ok(());
    };
    let request = RunRequest {
        image,
        cmd: arguments.collect(),
        network: Some("none".to_owned()),
        output_limit: 1 << 20,
        ..RunRequest::default()
    };
    let mut line = |_, text: &str| println!("{text}");
    let ended = docker.run(request, &Cancel::new(), &mut line).await?;
    println!("it ended with {}", ended.exit_code);
    Ok(())
}
