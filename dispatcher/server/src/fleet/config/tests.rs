use super::*;

#[test]
fn a_pod_url_becomes_host_and_port() {
    let clear = |text: &str| Ok((text.to_owned(), false));
    assert_eq!(authority("http://127.0.0.1:18001"), clear("127.0.0.1:18001"));
    assert_eq!(authority("http://[::1]:8000/"), clear("[::1]:8000"));
    assert_eq!(authority("http://pod-0.vllm"), clear("pod-0.vllm:80"));
    assert_eq!(authority("https://pod-0.vllm"), Ok(("pod-0.vllm:443".to_owned(), true)));
    for wrong in ["", "pod", "ftp://pod:1", "http://pod:1/v1", "http://u:p@pod:1"] {
        assert!(authority(wrong).is_err(), "{wrong:?}");
    }
    // Not silently 80.
    for port in ["", "0", "70000", "abc", "-1", "+80", "80:80"] {
        for host in ["pod", "127.0.0.1", "[::1]"] {
            assert!(authority(&format!("http://{host}:{port}")).is_err(), "{host}:{port}");
        }
    }
    for hostless in ["http://", "http://:8000", "http:///"] {
        assert!(authority(hostless).is_err(), "{hostless:?}");
    }
}

#[test]
fn two_pods_may_not_share_an_address_and_a_class_must_exist() {
    let pod = RawPod { url: "http://a:1".to_owned(), ..RawPod::default() };
    let odd =
        RawPod { class: Some("tpu".to_owned()), url: "http://b:1".to_owned(), ..RawPod::default() };
    let mut problems = Problems::default();
    let classes = [PodClass::default()];
    let pool = RawPool { pods: vec![pod.clone(), pod, odd], ..RawPool::default() };
    Members::check("pools[0]", &pool, &classes, &mut problems);
    let text = problems.to_string();
    assert!(text.contains("pools[0].pods[1].url: is the address of another pod too"), "{text}");
    assert!(text.contains("pools[0].pods[2].class: \"tpu\" is not one of classes"), "{text}");
}

#[test]
fn a_pods_name_is_left_out_or_not_empty() {
    let pod = |name: Option<&str>| RawPod {
        name: name.map(str::to_owned),
        url: "http://a:1".to_owned(),
        ..RawPod::default()
    };
    for (name, want) in [
        (None, ""),
        (Some("p"), ""),
        (Some(""), "[0].name: must not be empty; leave it out to have the host and port"),
    ] {
        let mut problems = Problems::default();
        let pool = RawPool { pods: vec![pod(name)], ..RawPool::default() };
        Members::check("", &pool, &[PodClass::default()], &mut problems);
        assert_eq!(problems.to_string().trim_start_matches(".pods"), want);
    }
}

#[test]
fn a_dns_name_is_a_host_alone() {
    let said = |host: &str| {
        let dns = RawDns { host: host.to_owned(), ..RawDns::default() };
        let mut problems = Problems::default();
        let pool = RawPool { dns: Some(dns), ..RawPool::default() };
        Members::check("p", &pool, &[PodClass::default()], &mut problems);
        problems.to_string()
    };
    for good in ["pods", "vllm.models.svc.cluster.local.", "_http._tcp.a-1", "10.0.0.1", "::1"] {
        assert_eq!(said(good), "", "{good:?}");
    }
    for wrong in ["http://x", "x:8000", "x/", "[::1]", "a b", ".", "a..b", "u@x"] {
        let want = "is no host; write its name alone, without http://, and its port at port";
        assert_eq!(said(wrong), format!("p.dns.host: {wrong:?} {want}"));
    }
    assert_eq!(said(""), "p.dns.host: missing; write the name to ask for");
}

#[test]
fn pods_in_several_pools_are_noted() {
    let pool = |urls: &[&str], dns: Option<&str>| {
        let pod = |url: &&str| RawPod { url: (*url).to_owned(), ..RawPod::default() };
        let pods = urls.iter().map(pod).collect();
        let dns = dns.map(|host| RawDns { host: host.to_owned(), ..RawDns::default() });
        let mut problems = Problems::default();
        let pool = RawPool { pods, dns, ..RawPool::default() };
        Members::check("", &pool, &[PodClass::default()], &mut problems)
    };
    let mut pools = [
        pool(&["http://a:1", "http://b:1"], Some("pods")),
        pool(&["http://b:1", "http://b:2"], Some("others")),
        pool(&["http://c:1"], Some("pods")),
    ];
    Members::note_shared(pools.iter_mut());
    let seats: Vec<_> = pools.iter().flat_map(|pool| &pool.seats).collect();
    let shared: Vec<_> =
        seats.iter().filter(|seat| seat.shared).map(|seat| &seat.authority).collect();
    assert_eq!(shared, ["b:1", "b:1"]);
    assert_eq!(pools.map(|pool| pool.dns.unwrap().shared), [true, false, true]);
}

fn engines(data_parallel_size: u16) -> PodClass {
    PodClass { data_parallel_size, ..PodClass::default() }
}

#[test]
fn each_engine_behind_an_address_is_a_pod_of_its_own() {
    let pod = |name: Option<&str>, url: &str| RawPod {
        name: name.map(str::to_owned),
        url: url.to_owned(),
        ..RawPod::default()
    };
    let mut problems = Problems::default();
    let pods = vec![pod(Some("a"), "http://a:1"), pod(None, "http://b:1")];
    let dns = RawDns { host: "pods".to_owned(), ..RawDns::default() };
    let pool = RawPool { pods, dns: Some(dns), ..RawPool::default() };
    let members = Members::check("pools[0]", &pool, &[engines(2)], &mut problems);
    assert_eq!(problems.to_string(), "");
    let seats = members.seats.iter().map(|seat| (&*seat.name, seat.address(), seat.rank));
    let want = [
        ("a@0", "a:1@0".to_owned(), Some(0)),
        ("a@1", "a:1@1".to_owned(), Some(1)),
        ("b:1@0", "b:1@0".to_owned(), Some(0)),
        ("b:1@1", "b:1@1".to_owned(), Some(1)),
    ];
    assert_eq!(seats.collect::<Vec<_>>(), want);
    assert!(members.seats.iter().take(2).all(|seat| seat.authority == "a:1"), "one address");
    assert_eq!(members.dns.unwrap().engines, 2);
    let whole = Members::check("pools[0]", &pool, &[engines(1)], &mut problems);
    let ranks = whole.seats.iter().map(|seat| (&*seat.name, seat.rank));
    assert_eq!(ranks.collect::<Vec<_>>(), [("a", None), ("b:1", None)]);
}

#[test]
fn an_engine_may_not_be_called_as_another_pod_is() {
    let classes = [
        PodClass { name: "one".into(), ..engines(1) },
        PodClass { name: "two".into(), ..engines(2) },
    ];
    let pod = |name: &str, class: &str| RawPod {
        name: Some(name.to_owned()),
        class: Some(class.to_owned()),
        url: format!("http://{class}:1"),
        ..RawPod::default()
    };
    for pods in [vec![pod("a@1", "one"), pod("a", "two")], vec![pod("a", "two"), pod("a@1", "one")]]
    {
        let mut problems = Problems::default();
        let pool = RawPool { pods, ..RawPool::default() };
        Members::check("pools[0]", &pool, &classes, &mut problems);
        let text = problems.to_string();
        assert!(text.contains("pools[0].pods[1].name: is the name of another pod too"), "{text}");
    }
}

#[test]
fn engines_of_one_pool_alone_are_not_shared() {
    let pod = RawPod { url: "http://a:1".to_owned(), ..RawPod::default() };
    let pool = RawPool { pods: vec![pod], ..RawPool::default() };
    let members = || Members::check("pools[0]", &pool, &[engines(2)], &mut Problems::default());
    let mut alone = [members()];
    Members::note_shared(alone.iter_mut());
    assert!(alone.iter().flat_map(|pool| &pool.seats).all(|seat| !seat.shared));
    let mut both = [members(), members()];
    Members::note_shared(both.iter_mut());
    assert!(both.iter().flat_map(|pool| &pool.seats).all(|seat| seat.shared));
}

#[test]
fn a_class_has_an_engine_and_not_more_than_anybody_has() {
    for (size, is_fine) in [(0, false), (1, true), (1024, true), (1025, false)] {
        let mut problems = Problems::default();
        let class =
            RawClass { name: "a".to_owned(), data_parallel_size: size, ..RawClass::default() };
        class.check("classes[0]", &mut problems);
        let text = problems.to_string();
        assert_eq!(text.is_empty(), is_fine, "{text}");
        let why = "classes[0].data_parallel_size: must be from 1 to 1024";
        assert!(is_fine || text.contains(why), "{text}");
    }
}
