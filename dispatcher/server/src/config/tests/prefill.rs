//! Who computes whose prompts.

use super::problems;

#[test]
fn who_computes_the_prompts_of_a_pool_is_another_one_that_does_nothing_else() {
    let pool = |model: &str, more: &str| {
        format!("  - {{ model: {model}, pods: [ {{ url: \"http://{model}:1\" }} ], {more} }}\n")
    };
    let said = |pools: &[(&str, &str)]| {
        let pools: String = pools.iter().map(|(model, more)| pool(model, more)).collect();
        problems(&format!("pools:\n{pools}"))
    };
    for (pools, want) in [
        (
            vec![("a", "prefill: { pool: pre }"), ("pra", "")],
            "\"pre\" is not the model of a pool; did you mean \"pra\"?",
        ),
        (vec![("a", "prefill: { pool: a }")], "is this pool; name another one"),
        (
            vec![("a", "prefill: { pool: b }"), ("b", "prefill: { pool: c }"), ("c", "")],
            "has its own prompts computed elsewhere",
        ),
        (vec![("a", "prefill: { pool: b }"), ("b", "aliases: [x]")], "has aliases or adapters"),
        (
            vec![("a", "prefill: { pool: b }"), ("b", "pods_key_env: SECRET")],
            "has a pods_key_env of its own",
        ),
        (
            vec![("a", "prefill: { pool: c }"), ("b", "prefill: { pool: c }"), ("c", "")],
            "computes the prompts of another pool too",
        ),
    ] {
        let said = said(&pools);
        assert!(said.contains("pools[0].prefill.pool: ") && said.contains(want), "{said}");
    }
}
