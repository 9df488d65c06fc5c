//! TLS as the file says it.

use super::{parse, problems};
use crate::config::Config;

#[test]
fn pods_at_https_are_believed_as_their_pool_says() {
    let pool = |more: &str| format!("pools: [ {{ model: m, {more} }} ]");
    let sealed = "pods: [ { url: 'https://pod.test:8443' } ]";
    let seat = |yaml: &str| {
        let config = Config::check(&parse(yaml).unwrap()).unwrap();
        config.pools[0].members.clone()
    };
    let anybody = seat(&pool(&format!("tls: {{ verify: false }}, {sealed}")));
    let clear = seat(&pool("pods: [ { url: 'http://pod.test:8443' } ]"));
    // Schemes are what they are in any letters.
    let loud = seat(&pool("tls: { verify: false }, pods: [ { url: 'HTTPS://pod.test:8443' } ]"));
    assert_eq!(loud.seats, anybody.seats);
    assert_ne!(anybody.seats, clear.seats, "it joins anew");
    assert!(anybody.seats[0].secure.is_some() && clear.seats[0].secure.is_none());
    let found = "tls: { verify: false }, dns: { host: pods.test, https: true }";
    assert!(seat(&pool(found)).dns.unwrap().secure.is_some());

    let config = Config::check(&parse(&pool(found)).unwrap()).unwrap();
    let said = config.notes().join("\n");
    assert!(said.contains("pools[0].tls.verify: whoever answers"), "{said}");
    for (more, want) in [
        (
            "tls: { verify: false }, pods: [ { url: 'http://pod:1' } ]",
            "pools[0].tls: is for pods at https://, of which there are none",
        ),
        (
            "tls: { key: k }, pods: [ { url: 'https://pod:1' } ]",
            "pools[0].tls.certificate: missing; a certificate and its key go together",
        ),
        (
            "tls: { ca: none.pem }, pods: [ { url: 'https://pod:1' } ]",
            "pools[0].tls.ca: cannot read none.pem: No such file or directory (os error 2)",
        ),
        (
            "tls: { verify: false }, pods: [ { url: 'https://po_d..x:1' } ]",
            "pools[0].pods[0].url: \"https://po_d..x:1\": \"po_d..x\" is no name that a certificate can be for",
        ),
    ] {
        assert_eq!(problems(&pool(more)), want);
    }
}

#[test]
fn who_opens_no_connection_reads_no_certificate() {
    let yaml = "tls: { certificate: none.pem, key: none.key }\n\
        admin: { tls: { certificate: none.pem, key: none.key } }\n\
        pools: [ { model: m, tls: { ca: none.pem }, pods: [ { url: 'https://pod:1' } ], dns: { host: pods, https: true } } ]\n";
    let said = problems(yaml);
    assert_eq!(said.matches("cannot read none.pem").count(), 3, "{said}");
    let raw = parse(yaml).unwrap().in_the_clear();
    let config = Config::check(&raw).unwrap();
    assert!(config.tls.is_none() && config.admin_tls.is_none());
    assert_eq!(config.pools[0].members.seats[0].authority, "pod:1");
}
