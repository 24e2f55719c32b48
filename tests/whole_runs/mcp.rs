//! Programs inside a run that speak the Model Context Protocol: JSON lines in, JSON lines out, the same records behind.

use std::fs;

use serde_json::{Value, json};

use crate::inside::{ASKED, FREE, world};
use crate::world::World;

/// A task whose command hands these lines to a server and keeps what it says.
fn speaks(world: &World, lines: &[String]) {
    fs::write(world.path("messages"), lines.join("\n") + "\n").unwrap();
    let line = format!(
        "{} mcp < {} >> {} 2> {}",
        env!("CARGO_BIN_EXE_agentrun"),
        world.at("messages"),
        world.at("said"),
        world.at("stderr")
    );
    world.command_task("t", &line);
}

/// What the server said: every line is one message.
fn said(world: &World) -> Vec<Value> {
    let text = fs::read_to_string(world.path("said")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn message(id: u64, method: &str, params: Value) -> String {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }).to_string()
}

fn tool(id: u64, name: &str, arguments: Value) -> String {
    message(id, "tools/call", json!({ "name": name, "arguments": arguments }))
}

fn note(id: u64) -> String {
    tool(id, "request_action", json!({ "type": "notification", "target": "ops", "subject": { "event": "e1" } }))
}

/// Whether a tool failed, and the document that it answered.
fn answered(message: &Value) -> (bool, Value) {
    let result = &message["result"];
    let text = result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no result: {message:#}"));
    (result["isError"].as_bool().unwrap(), serde_json::from_str(text).unwrap())
}

#[test]
fn r_a2_over_mcp_too_what_is_asked_for_twice_and_by_a_new_run_is_done_once() {
    let world = world(FREE);
    speaks(&world, &[note(1), note(2)]);
    let (exit, run) = world.start("t");
    assert_eq!(exit, 0, "{run:#}");
    assert_eq!(world.json(&["start", "t", "--new"]).0, 0);
    let said = said(&world);
    assert_eq!(said.len(), 4, "{said:#?}");
    for (n, message) in said.iter().enumerate() {
        let (is_error, document) = answered(message);
        assert_eq!((is_error, &document["answer"]), (false, &"done".into()), "{n}: {document:#}");
        assert_eq!(document["duplicate"], n > 0, "{n}: {document:#}");
        assert_eq!(document["schema"], "agentrun/action/1");
        assert_eq!(document["id"], answered(&said[0]).1["id"], "one record");
    }
    assert_eq!(world.lines("ledger"), 1, "sent once");
    world.assert_sound("run_t_001");
    world.assert_sound("run_t_002");
}

#[test]
fn r_a2_the_protocol_is_spoken_as_it_is_written() {
    let world = world(FREE);
    let hello =
        |id, version: &str| message(id, "initialize", json!({ "protocolVersion": version, "capabilities": {} }));
    speaks(
        &world,
        &[
            hello(1, "2024-11-05"),
            hello(2, "2199-01-01"),
            json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string(),
            message(3, "ping", json!({})),
            message(4, "tools/list", json!({})),
            message(5, "resources/list", json!({})),
            "{ this is no JSON".to_owned(),
            "[]".to_owned(),
            json!({ "jsonrpc": "2.0", "id": 6, "result": {} }).to_string(),
            tool(7, "rm", json!({})),
            tool(8, "request_action", json!({ "type": "notification" })),
            tool(9, "request_action", json!({ "type": "export", "target": "x", "subject": { "document": "d" } })),
            tool(10, "action_status", json!({ "id": "act_none" })),
            tool(11, "run_status", json!({})),
            tool(12, "budget", json!({})),
            "x".repeat(3 << 20),
            message(13, "ping", json!({})),
        ],
    );
    assert_eq!(world.start("t").0, 0);
    let said = said(&world);
    let of = |id: u64| said.iter().find(|message| message["id"] == id).unwrap_or_else(|| panic!("{id}: {said:#?}"));
    assert_eq!(of(1)["result"]["protocolVersion"], "2024-11-05");
    assert_eq!(of(2)["result"]["protocolVersion"], "2025-06-18", "one that nobody knows is answered with the newest");
    assert_eq!((&of(3)["result"], &of(13)["result"]), (&json!({}), &json!({})));
    let tools = of(4)["result"]["tools"].as_array().unwrap();
    let names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["request_action", "action_status", "run_status", "budget"]);
    assert_eq!((&of(5)["error"]["code"], &of(7)["error"]["code"]), (&json!(-32_601), &json!(-32_602)));
    let nobodys: Vec<_> = said.iter().filter(|m| m["id"].is_null()).map(|m| m["error"]["code"].clone()).collect();
    assert_eq!(nobodys, [json!(-32_700), json!(-32_600), json!(-32_700)], "{said:#?}");
    assert_eq!(said.len(), 15, "notifications and answers are not answered: {said:#?}");
    let failed = |id, code: &str| {
        let (is_error, document) = answered(of(id));
        assert_eq!((is_error, &document["code"]), (true, &code.into()), "{document:#}");
    };
    failed(8, "VALIDATION_ERROR");
    failed(9, "POLICY_DENIED");
    failed(10, "NOT_FOUND");
    let (is_error, status) = answered(of(11));
    assert_eq!((is_error, &status["runs"][0]["run"]), (false, &"run_t_001".into()), "{status:#}");
    let (is_error, budget) = answered(of(12));
    assert_eq!((is_error, &budget["schema"]), (false, &"agentrun/budget/1".into()), "{budget:#}");
    assert_eq!(fs::read_to_string(world.path("stderr")).unwrap(), "");
}

#[test]
fn r_a9_over_mcp_what_waits_for_a_person_is_said_at_once_and_can_be_looked_at() {
    let world = world(ASKED);
    speaks(&world, &[note(1)]);
    assert_eq!(world.start("t").0, 3);
    let (is_error, document) = answered(&said(&world)[0]);
    assert_eq!((is_error, &document["answer"]), (false, &"waits_for_person".into()), "{document:#}");
    assert!(document["advice"].as_str().unwrap().contains("do not ask again"));
    let id = document["id"].as_str().unwrap();
    speaks(&world, &[tool(1, "action_status", json!({ "id": id })), note(2)]);
    world.json(&["start", "t", "--new"]);
    let said = said(&world);
    let (is_error, refused) = answered(&said[1]);
    assert_eq!((is_error, &refused["code"]), (true, &"NOT_FOUND".into()), "this run did not ask for it: {refused:#}");
    let (_, same) = answered(&said[2]);
    assert_eq!((&same["id"], &same["duplicate"]), (&json!(id), &json!(true)), "{same:#}");
    assert_eq!(world.lines("ledger"), 0);
}

#[test]
fn r_a2_outside_of_a_run_there_is_no_server() {
    let world = world(FREE);
    let refused = world.run(&["mcp"]);
    assert_eq!((refused.exit, refused.stdout.as_str()), (2, ""), "{}", refused.stderr);
    assert!(refused.stderr.contains("AGENTRUN_RUN_ID is not set"), "{}", refused.stderr);
}
