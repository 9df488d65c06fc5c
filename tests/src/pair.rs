//! Two dispatchers in front of the same pods, the first of which decides.

use std::{
    net::{SocketAddr, TcpListener},
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use serde_json::{Value, json};

use crate::{Call, Plan, Stage, Weir, eventually};

/// A stage, and a second dispatcher beside its own.
#[derive(Debug)]
pub struct Pair {
    /// What stands; its dispatcher started first.
    pub stage: Stage,
    /// The second dispatcher.
    pub second: Weir,
}

impl Plan {
    /// Raises the stage with two dispatchers, and waits until the second goes by what the first decides.
    ///
    /// # Panics
    /// When the second one's configuration cannot be written.
    pub async fn raise_two(self) -> Pair {
        let all = [(); 2].map(|()| free_address());
        let others = all.map(|address| address.to_string());
        let replicas = |place: usize| json!({"listen": others[place], "others": others});
        let stage = self.config(json!({"replicas": replicas(0)})).raise().await;
        let config = std::fs::read_to_string(stage.config()).expect("the configuration is there");
        let mut config: Value = serde_json::from_str(&config).expect("it is JSON");
        config["replicas"] = replicas(1);
        config["spool"] = json!({"dir": stage.path("second-spool")});
        config["state"] = json!({"dir": stage.path("second-state")});
        config["model"] = json!({"bundles": stage.path("second-bundles")});
        let file = stage.path("second.yaml");
        std::fs::write(&file, config.to_string()).expect("it can be written");
        let second = Weir::start(&file, &stage.path("second.log")).await;
        second.ready().await;
        second.decided_by(Some(all[0])).await;
        Pair { stage, second }
    }
}

/// The first port that is tried; below those that the system gives to who asks for any, so that nobody takes one meanwhile.
const FIRST_PORT: u16 = 20_000;
/// How many there are to try.
const PORTS: u32 = 12_000;

/// An address that nobody listens on, and another one each time.
pub fn free_address() -> SocketAddr {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let any = || {
        let offset = (std::process::id() * 61 + NEXT.fetch_add(1, Relaxed)) % PORTS;
        let address = SocketAddr::from(([127, 0, 0, 1], FIRST_PORT + offset as u16));
        TcpListener::bind(address).ok().map(|_| address)
    };
    (0..PORTS).find_map(|_| any()).expect("there is a free port")
}

impl Weir {
    /// Waits until the dispatcher there decides for this one, or it does itself.
    pub async fn decided_by(&self, whom: Option<SocketAddr>) {
        let whom = whom.map_or(Value::Null, |whom| json!(whom.to_string()));
        eventually("it is known who decides", async || {
            let seen = Call::get("/api/v1/overview").to(self.admin).await.json();
            let decides = seen["pools"][0]["decided_by"].clone();
            if decides == whom { Ok(()) } else { Err(decides) }
        })
        .await;
    }
}
