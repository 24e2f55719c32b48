//! What may not change the meaning of a task: layout, comments, the order of keys (R-F2); and what is recorded of it.

use proptest::prelude::*;

use super::*;

#[test]
fn r_f2_comments_order_of_keys_spelling_and_limits_do_not_change_the_meaning() {
    let base = load(&with_steps(
        "- context\n- { kind: command, key: a, run: x, needs: [context], env: { A: '1', B: '2' } }\n",
    ))
    .unwrap();
    let same = "# c\nsteps:\n  - { kind: context, timeout: 2m }\n\n  - env: {B: \"2\",\n        A: 1}\n    needs:\n    - context\n    - context\n    run: \"x\"   # c\n    key: a\n    kind: command\nbudget: { task: { tokens: 5 } }\ntitle: T\ninputs:\n  ticket: 'a'\ntask: t\n";
    assert_eq!(load(same).unwrap().meaning(), base.meaning());
    for other in
        ["- context\n", "- context\n- { kind: command, key: a, run: y, needs: [context], env: { A: '1', B: '2' } }\n"]
    {
        assert_ne!(load(&with_steps(other)).unwrap().meaning(), base.meaning());
    }
}

/// Tasks as text, in two layouts, from the same parts.
fn layouts(mode: &str, files: &[String], run: &[String], timeout: u32) -> [String; 2] {
    let quoted = |s: &String| serde_json::to_string(s).unwrap();
    let list = |items: &[String]| items.iter().map(quoted).collect::<Vec<_>>().join(", ");
    let (files, run) = (list(files), list(run));
    let flow = format!(
        "{{task: t, mode: \"{mode}\", context: {{files: [{files}]}}, steps: [context, {{kind: command, run: [go, {run}], timeout: {timeout}s}}]}}\n"
    );
    let block = format!(
        "# comment\nsteps:\n\n- kind: context\n- run:\n  - go\n{}  timeout: {timeout}s # c\n  kind: command\ncontext:\n  files: [ {files} ]\nmode: {mode}\n\n\ntask: \"t\"\n",
        run.split(", ").filter(|r| !r.is_empty()).map(|r| format!("  - {r}\n")).collect::<Vec<_>>().concat()
    );
    [flow, block]
}

proptest! {
    #[test]
    fn r_f2_layout_never_changes_the_meaning(
        mode in "[a-z]{1,8}",
        files in prop::collection::vec("[a-z]{1,5}/[a-z*]{1,5}", 0..4),
        run in prop::collection::vec("[a-z0-9$;'#: -]{1,8}", 0..4),
        timeout in 61_u32..1400,
    ) {
        let [flow, block] = layouts(&mode, &files, &run, timeout).map(|text| load(&text).unwrap());
        prop_assert_eq!(flow.meaning(), block.meaning());
        prop_assert_eq!(&flow, &block);
    }

    /// What was recorded (JSON in the database) is what was meant.
    #[test]
    fn a_recorded_task_is_read_back(run in prop::collection::vec("[ -z]{1,8}", 1..4), value in "[ -z]{0,12}") {
        prop_assume!(!run[0].trim().is_empty());
        let text = format!("task: t\ninputs: {{ a: {} }}\nsteps: [ {{ kind: command, run: {} }} ]\n",
            serde_json::to_string(&value).unwrap(), serde_json::to_string(&run).unwrap());
        let task = load(&text).unwrap();
        let back: TaskSpec = serde_json::from_str(&serde_json::to_string(&task).unwrap()).unwrap();
        prop_assert_eq!(back.meaning(), task.meaning());
        prop_assert_eq!(back, task);
    }

    #[test]
    fn f88_no_text_makes_the_reader_panic(text in "(task|steps|kind|needs|when|run|agent|[\\[\\]{}:,\n \"'#-]){0,40}") {
        let _ = load(&text);
    }
}
