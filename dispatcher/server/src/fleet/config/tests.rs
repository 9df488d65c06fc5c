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
    let classes = [RawClass::default()];
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
        Members::check("", &pool, &[RawClass::default()], &mut problems);
        assert_eq!(problems.to_string().trim_start_matches(".pods"), want);
    }
}

#[test]
fn a_dns_name_is_a_host_alone() {
    let said = |host: &str| {
        let dns = RawDns { host: host.to_owned(), ..RawDns::default() };
        let mut problems = Problems::default();
        let pool = RawPool { dns: Some(dns), ..RawPool::default() };
        Members::check("p", &pool, &[RawClass::default()], &mut problems);
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
        Members::check("", &pool, &[RawClass::default()], &mut problems)
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

fn engines(data_parallel_size: u16) -> RawClass {
    RawClass { data_parallel_size, ..RawClass::default() }
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
    assert_eq!(members.dns.unwrap().engines.count, 2);
    let whole = Members::check("pools[0]", &pool, &[engines(1)], &mut problems);
    let ranks = whole.seats.iter().map(|seat| (&*seat.name, seat.rank));
    assert_eq!(ranks.collect::<Vec<_>>(), [("a", None), ("b:1", None)]);
}

#[test]
fn an_engine_may_not_be_called_as_another_pod_is() {
    let classes = [
        RawClass { name: "one".into(), ..engines(1) },
        RawClass { name: "two".into(), ..engines(2) },
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

/// A pool with these pods, by URL and unit.
fn of_class(
    class: RawClass,
    pods: &[(&str, Option<&str>)],
    dns: Option<&str>,
) -> (Members, String) {
    let pod = |(url, unit): &(&str, Option<&str>)| RawPod {
        url: (*url).to_owned(),
        unit: unit.map(str::to_owned),
        ..RawPod::default()
    };
    let pods = pods.iter().map(pod).collect();
    let dns = dns.map(|host| RawDns { host: host.to_owned(), port: 65_534, ..RawDns::default() });
    let mut problems = Problems::default();
    let pool = RawPool { pods, dns, ..RawPool::default() };
    let members = Members::check("pools[0]", &pool, &[class], &mut problems);
    (members, problems.to_string())
}

#[test]
fn engines_with_a_port_each_are_reached_by_it() {
    let class = |size| RawClass { data_parallel_multi_port: true, ..engines(size) };
    let (members, wrong) = of_class(class(2), &[("http://a:8000", None)], Some("10.0.0.1"));
    assert_eq!(wrong, "");
    let seats = members.seats.iter().map(|seat| {
        (&*seat.name, &*seat.server, seat.authority.clone(), seat.address(), seat.rank)
    });
    let at = |port: u16| format!("a:{port}");
    let want = [
        ("a:8000@0", "a:8000", at(8000), at(8000), None),
        ("a:8000@1", "a:8000", at(8001), at(8001), None),
    ];
    assert_eq!(seats.collect::<Vec<_>>(), want);
    let groups = members.seats.iter().map(|seat| seat.group.as_deref());
    assert_eq!(groups.collect::<Vec<_>>(), [Some("a:8000"); 2]);
    let dns = members.dns.unwrap();
    let found: Vec<Seat> = dns.seats("10.0.0.1:65534".parse().unwrap()).collect();
    let found = found.iter().map(|seat| (&*seat.name, &*seat.authority));
    let want = [("10.0.0.1:65534@0", "10.0.0.1:65534"), ("10.0.0.1:65534@1", "10.0.0.1:65535")];
    assert_eq!(found.collect::<Vec<_>>(), want);

    let twice = [("http://a:8000", None), ("http://a:8001", None)];
    let (_, wrong) = of_class(class(2), &twice, None);
    assert!(wrong.contains("pools[0].pods[1].url: is the address of another pod too"), "{wrong}");
    let (_, wrong) = of_class(class(3), &[("http://a:65534", None)], Some("10.0.0.1"));
    for key in ["pools[0].pods[0].url", "pools[0].dns.port"] {
        assert!(wrong.contains(&format!("{key}: has no port for each of its engines")), "{wrong}");
    }
}

#[test]
fn a_server_of_which_a_port_is_listed_is_not_found_again() {
    let class = RawClass { data_parallel_multi_port: true, ..engines(2) };
    let listed = [("http://10.0.0.1:8001", None)];
    let (members, _) = of_class(class, &listed, Some("pods"));
    let dns = members.dns.unwrap();
    let found = |at: &str| dns.is_listed(at.parse().unwrap());
    assert_eq!(["10.0.0.1:8000", "10.0.0.1:8002"].map(found), [true, true]);
    assert_eq!(["10.0.0.1:8003", "10.0.0.2:8001"].map(found), [false, false]);
}

#[test]
fn pools_that_use_one_port_of_a_server_share_it() {
    let class = |size| RawClass { data_parallel_multi_port: true, ..engines(size) };
    let two = |first: &str| of_class(class(2), &[(first, None)], None).0;
    let mut pools = [two("http://a:1"), two("http://a:2")];
    Members::note_shared(pools.iter_mut());
    let shared = pools.iter().flat_map(|pool| pool.seats.iter().map(|seat| seat.shared));
    assert_eq!(shared.collect::<Vec<_>>(), [false, true, true, false]);
}

#[test]
fn a_class_says_who_steps_together() {
    let pods = [("http://a:1", Some("u")), ("http://b:1", Some("u")), ("http://c:1", Some("v"))];
    let groups = |size, steps_together| {
        let class = RawClass { steps_together, ..engines(size) };
        let (members, wrong) = of_class(class, &pods, None);
        assert_eq!(wrong, "");
        let group = |seat: &Seat| seat.group.as_deref().unwrap_or("nobody").to_owned();
        members.seats.iter().map(group).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(groups(1, StepsTogether::Server), "nobody, nobody, nobody");
    assert_eq!(groups(2, StepsTogether::Server), "a:1, a:1, b:1, b:1, c:1, c:1");
    assert_eq!(groups(2, StepsTogether::None), "nobody, nobody, nobody, nobody, nobody, nobody");
    assert_eq!(groups(1, StepsTogether::Unit), "unit u, unit u, unit v");
    assert_eq!(groups(2, StepsTogether::Unit), "unit u, unit u, unit u, unit u, unit v, unit v");
    assert_eq!(groups(1, StepsTogether::Pool), "pool, pool, pool");

    let class = RawClass { steps_together: StepsTogether::Unit, ..engines(2) };
    let (_, wrong) = of_class(class, &[("http://a:1", None)], Some("pods"));
    assert!(wrong.contains("pools[0].pods[0].unit: missing"), "{wrong}");
    assert!(wrong.contains("pools[0].dns: finds pods of no unit"), "{wrong}");
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
