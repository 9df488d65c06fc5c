//! An OpenAI client needs nothing but another base URL: it streams, it lists, and it sees errors as
//! errors.
#![expect(clippy::unwrap_used, reason = "a scenario says what broke by panicking")]

use async_openai::{
    Client,
    config::OpenAIConfig,
    error::OpenAIError,
    types::{
        chat::{
            ChatCompletionRequestUserMessage, CreateChatCompletionRequest,
            CreateChatCompletionRequestArgs,
        },
        completions::CreateCompletionRequestArgs,
    },
};
use futures_util::StreamExt;
use serde_json::json;
use weir_tests::{Call, MODEL, Plan, Stage};

fn client(stage: &Stage) -> Client<OpenAIConfig> {
    let config = OpenAIConfig::new()
        .with_api_base(format!("http://{}/v1", stage.weir.api))
        .with_api_key("sk-any");
    Client::with_config(config)
}

fn chat(max_tokens: u32) -> CreateChatCompletionRequest {
    let message = ChatCompletionRequestUserMessage::from("What do pods pull?");
    CreateChatCompletionRequestArgs::default()
        .model(MODEL)
        .max_completion_tokens(max_tokens)
        .messages([message.into()])
        .build()
        .unwrap()
}

#[tokio::test]
async fn a_chat_is_streamed_word_by_word() {
    let mut stage = Stage::simple().await;
    let mut stream = client(&stage).chat().create_stream(chat(5)).await.unwrap();
    let (mut words, mut finish) = (0, None);
    while let Some(chunk) = stream.next().await {
        let chunk = chunk.unwrap();
        assert_eq!(chunk.model, MODEL);
        for choice in chunk.choices {
            words += usize::from(choice.delta.content.is_some_and(|word| !word.is_empty()));
            finish = choice.finish_reason.or(finish);
        }
    }
    assert!((1..=5).contains(&words), "{words}");
    assert!(finish.is_some());
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_chat_is_answered_whole() {
    let mut stage = Stage::simple().await;
    let answer = client(&stage).chat().create(chat(5)).await.unwrap();
    assert!(answer.choices[0].message.content.is_some(), "{answer:?}");
    assert!(answer.usage.unwrap().completion_tokens <= 5);
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_completion_of_many_prompts_is_answered() {
    let mut stage = Stage::simple().await;
    let request = CreateCompletionRequestArgs::default()
        .model(MODEL)
        .prompt(["one", "two"])
        .max_tokens(4_u32)
        .build()
        .unwrap();
    let answer = client(&stage).completions().create(request).await.unwrap();
    assert_eq!(answer.choices.len(), 2);
    stage.assert_settled().await;
}

#[tokio::test]
async fn models_and_aliases_are_listed() {
    let stage = Plan::default().alias("gpt-4o").raise().await;
    let list = client(&stage).models().list().await.unwrap();
    let names: Vec<&str> = list.data.iter().map(|model| model.id.as_str()).collect();
    assert_eq!(names, [MODEL, "gpt-4o"]);
}

#[tokio::test]
async fn a_request_that_is_shed_is_an_api_error_with_a_code() {
    let mut stage =
        Plan::default().seats(4).config(json!({"queue": {"max_requests": 1}})).raise().await;
    stage.pods[0].fault(json!({"kind": "hang"})).await;
    let held = stage.queue_up(1, &Call::chat(5)).await;
    let mut request = chat(5);
    request.service_tier = Some(async_openai::types::chat::ServiceTier::Flex);
    let error = client(&stage).chat().create(request).await.unwrap_err();
    let OpenAIError::ApiError(error) = error else { panic!("{error:?}") };
    assert_eq!(error.status_code.as_u16(), 429);
    assert_eq!(error.api_error.code.as_deref(), Some("slow_down"));
    assert_eq!(error.api_error.r#type.as_deref(), Some("rate_limit_error"));
    drop(held);
    stage.assert_settled().await;
}

#[tokio::test]
async fn an_unknown_model_is_an_api_error_with_a_code() {
    let mut stage = Stage::simple().await;
    let mut request = chat(5);
    request.model = "unknown".to_owned();
    let error = client(&stage).chat().create(request).await.unwrap_err();
    let OpenAIError::ApiError(error) = error else { panic!("{error:?}") };
    assert_eq!(error.api_error.code.as_deref(), Some("model_not_found"));
    assert_eq!(error.api_error.param.as_deref(), Some("model"));
    stage.assert_settled().await;
}

#[tokio::test]
async fn a_pod_that_dies_mid_stream_is_an_error_and_not_the_end_of_the_answer() {
    let mut stage = Stage::simple().await;
    for _ in 0..3 {
        stage.pods[0].fault(json!({"kind": "die_mid_stream", "after_tokens": 2, "count": 1})).await;
        // Long enough that no drawn length ends it before.
        let mut stream = client(&stage).chat().create_stream(chat(4000)).await.unwrap();
        let (mut good, mut errors) = (0, 0);
        while let Some(chunk) = stream.next().await {
            match chunk {
                Ok(_) => good += 1,
                Err(_) => errors += 1,
            }
        }
        assert!(errors > 0, "{good} chunks and no error look like success");
    }
    stage.assert_settled().await;
}
