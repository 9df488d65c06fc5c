//! What docs/gateways.md tells a gateway is right: its nginx lets streams pass as they come and keeps
//! outsiders' headers out, and its snippet for the OpenAI SDK prints an answer.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use std::{
    net::{SocketAddr, TcpListener},
    path::Path,
    process::Command,
};

use weir_tests::{Call, Plan, Program, Stage, built, eventually, tool};

const SDK: (&str, &str) = ("openai", "3.54.0");

/// The first code block of a language on the page.
fn block(language: &str) -> String {
    let page = std::fs::read_to_string(built::root().join("docs/gateways.md")).unwrap();
    let (_, rest) = page.split_once(&format!("```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0.to_owned()
}

/// nginx with the page's settings, in front of a dispatcher.
async fn nginx(program: &Path, stage: &Stage) -> (Program, SocketAddr) {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let settings = block("nginx")
        .replace("server weir:80", &format!("server {}", stage.weir.api))
        .replace("listen 8000", &format!("listen {free}"));
    let dir = stage.path("nginx");
    std::fs::create_dir(&dir).unwrap();
    let own = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|what| format!("{what}_temp_path {};\n", dir.join(what).display()));
    let text = format!(
        "daemon off;\nmaster_process off;\npid {0}/pid;\nerror_log {0}/errors;\nevents {{}}\n\
         http {{\naccess_log off;\n{1}{settings}}}\n",
        dir.display(),
        own.concat()
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, text).unwrap();
    let mut command = Command::new(program);
    command.arg("-c").arg(file).arg("-p").arg(&dir).arg("-e").arg(dir.join("errors"));
    let running = Program::start(&mut command, &dir.join("log"));
    eventually("nginx answers", async || Call::get("/").try_open(free).await).await;
    (running, free)
}

#[tokio::test]
async fn through_nginx_a_stream_passes_as_it_comes_and_outsiders_name_no_objective() {
    let Some(program) = tool::in_path("nginx") else { return };
    let mut stage = Plan::default().speed(1.0).raise().await;
    let (gateway, address) = nginx(&program, &stage).await;
    // Weir would refuse each of them, if it came through.
    let mut call = Call::chat(400);
    for name in ["x-slo-ttft-ms", "x-llm-d-slo-ttft-ms", "x-slo-tpot-ms", "x-llm-d-slo-tpot-ms"] {
        call = call.header(name, "nonsense");
    }
    let mut stream = call.open(address).await;
    stream.first_token().await;
    assert_eq!(stage.weir.open_requests().await.in_flight, 1, "the rest is still to come");
    let reply = stream.rest().await;
    reply.assert_whole();
    assert_eq!(reply.header("x-weir-pod"), "pod-0");
    assert!(!reply.header("x-request-id").is_empty());
    drop(gateway);
    stage.assert_settled().await;
}

#[tokio::test]
async fn the_snippet_for_the_openai_sdk_prints_an_answer() {
    let Some(python) = tool::python(SDK.0, SDK.1, "python") else { return };
    let mut stage = Stage::simple().await;
    let snippet =
        block("python").replace("http://weir/v1", &format!("http://{}/v1", stage.weir.api));
    let file = stage.path("snippet.py");
    std::fs::write(&file, snippet).unwrap();
    let mut python = Command::new(python);
    python.arg(file).env_remove("OPENAI_BASE_URL");
    let output = tokio::task::spawn_blocking(move || python.output()).await.unwrap().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !output.stdout.trim_ascii().is_empty(), "{said}");
    println!("{}", String::from_utf8_lossy(&output.stdout));
    stage.assert_settled().await;
}
