"""Write files of trajectories with the writers that released agent frameworks have.

Each function imports one framework, which must be importable: harbor 0.26.0, nemo-gym
0.4.0, verifiers 0.1.14, verl 0.9.1, mini-swe-agent 2.4.6, inspect-ai 0.3.285,
browsergym-experiments 0.14.3, browser-use 0.13.14 or openpipe-art 0.5.18.
The models are scripted: two tasks, a click on a screenshot, an answer.
Usage: `python trajectory_files.py FOLDER NAME...`, such as `... tests/data harbor`.
"""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

# A PNG of 2 x 2 pixels.
PNG = (
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAEElEQVR4nGNkYGBgYGBgAgAACwAD"
    "4cE3hQAAAABJRU5ErkJggg=="
)
URL = f"data:image/png;base64,{PNG}"
# Prompt, answer and log-probs of three calls; the last has another context.
CALLS = [
    ([1, 2, 3, 4], [10, 11], [-0.5, -0.25]),
    ([1, 2, 3, 4, 10, 11, 5], [12], [-0.125]),
    ([1, 9], [13], [-1.0]),
]


def harbor(folder: Path) -> None:
    """A job with a trial for each version of ATIF."""
    from harbor.models.trajectories import (
        Agent,
        ContentPart,
        ImageSource,
        Metrics,
        Observation,
        ObservationResult,
        Step,
        ToolCall,
        Trajectory,
    )

    def picture(number: int) -> ContentPart:
        source = ImageSource(media_type="image/png", path=f"images/{number}.png")
        return ContentPart(type="image", source=source)

    def metrics(call: int) -> Metrics:
        prompt, written, log_probs = CALLS[call]
        return Metrics(
            prompt_tokens=len(prompt),
            completion_tokens=len(written),
            prompt_token_ids=prompt,
            completion_token_ids=written,
            logprobs=log_probs,
        )

    text = ContentPart(type="text", text="Open the menu.")
    click = ToolCall(tool_call_id="1", function_name="click", arguments={"x": 1})
    seen = ObservationResult(source_call_id="1", content=[picture(1)])
    agent = Agent(name="terminus-2", version="2.0", model_name="m")
    for version in ("1.7", "1.8"):
        trial = folder / "harbor-0.26.0" / f"menu__{version}"
        (trial / "agent" / "images").mkdir(parents=True, exist_ok=True)
        for number in (0, 1):
            file = trial / "agent" / "images" / f"{number}.png"
            file.write_bytes(base64.b64decode(PNG))
        steps = [
            Step(step_id=1, source="user", message=[text, picture(0)]),
            Step(
                step_id=2,
                source="agent",
                message="I click.",
                reasoning_content="The menu is at the top.",
                tool_calls=[click],
                observation=Observation(results=[seen]),
                metrics=metrics(0),
            ),
            Step(step_id=3, source="agent", message="Done.", metrics=metrics(1)),
            Step(step_id=4, source="agent", message="Again.", metrics=metrics(2)),
            Step(step_id=5, source="agent", message="(saved)", llm_call_count=0),
        ]
        trajectory = Trajectory(
            schema_version=f"ATIF-v{version}",
            session_id=f"session-{version}",
            agent=agent,
            steps=steps,
        )
        text_of = json.dumps(trajectory.to_json_dict(), indent=2)
        (trial / "agent" / "trajectory.json").write_text(text_of)
        result = {
            "task_name": "menu",
            "trial_name": trial.name,
            "verifier_result": {"rewards": {"reward": 0.5}},
            "exception_info": None,
        }
        (trial / "result.json").write_text(json.dumps(result, indent=4))


def nemo_gym(folder: Path) -> None:
    """Rollouts with token ids, as a model server returns them for training."""
    from nemo_gym.openai_utils import (
        NeMoGymResponse,
        NeMoGymResponseFunctionToolCallForTraining,
        NeMoGymResponseOutputMessageForTraining,
    )

    def ids(call: int) -> dict[str, Any]:
        names = ("prompt_token_ids", "generation_token_ids", "generation_log_probs")
        return dict(zip(names, CALLS[call], strict=True))

    content = [{"type": "output_text", "text": "Done.", "annotations": []}]
    output = [
        {
            "type": "reasoning",
            "id": "r",
            "summary": [{"type": "summary_text", "text": "The menu is at the top."}],
        },
        NeMoGymResponseFunctionToolCallForTraining(
            arguments='{"x": 1}',
            call_id="1",
            name="click",
            type="function_call",
            **ids(0),
        ),
        {"type": "function_call_output", "call_id": "1", "output": "ok"},
        NeMoGymResponseOutputMessageForTraining(
            id="m",
            content=content,
            role="assistant",
            status="completed",
            type="message",
            **ids(1),
        ),
    ]
    response = NeMoGymResponse(
        id="resp_1",
        created_at=0,
        model="m",
        object="response",
        output=output,
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
    )
    parts = [
        {"type": "input_image", "image_url": URL, "detail": "auto"},
        {"type": "input_text", "text": "Open the menu."},
    ]
    row = {
        "responses_create_params": {"input": [{"role": "user", "content": parts}]},
        "response": response.model_dump(mode="json"),
        "reward": 1.0,
        "hit": True,
        "_ng_task_index": 4,
        "_ng_rollout_index": 0,
    }
    home = folder / "nemo-gym-0.4.0"
    home.mkdir(parents=True, exist_ok=True)
    (home / "example_rollouts.jsonl").write_text(json.dumps(row) + "\n")


def verifiers(folder: Path) -> None:
    """Results of an evaluation that keeps `trajectory`."""
    from verifiers.types import RolloutTiming, State
    from verifiers.utils.save_utils import save_outputs, state_to_output

    user: dict[str, Any] = {
        "role": "user",
        "content": [
            {"type": "image_url", "image_url": {"url": URL}},
            {"type": "text", "text": "Open the menu."},
        ],
    }
    said = [
        {"role": "assistant", "content": text} for text in ("click", "Done.", "Again.")
    ]
    prompts: list[list[dict[str, Any]]] = [
        [user],
        [user, said[0], {"role": "user", "content": "ok"}],
        [{"role": "user", "content": "The menu is open."}],
    ]
    steps = []
    for number, (ids, written, log_probs) in enumerate(CALLS):
        tokens = {
            "prompt_ids": ids,
            "prompt_mask": [0] * len(ids),
            "completion_ids": written,
            "completion_mask": [1] * len(written),
            "completion_logprobs": log_probs,
            "overlong_prompt": False,
            "is_truncated": False,
            "routed_experts": None,
        }
        steps.append(
            {
                "prompt": prompts[number],
                "completion": [said[number]],
                "response": None,
                "tokens": tokens,
                "reward": None,
                "advantage": None,
                "is_truncated": False,
                "trajectory_id": "t0",
                "extras": {},
            }
        )
    state = State(
        input={"prompt": [user], "example_id": 7},
        completion=[said[0], prompts[1][2], said[1]],
        trajectory=steps,
        trajectory_id="t0",
        reward=1.0,
        metrics={"opened": 1.0},
        timing=RolloutTiming(start_time=0.0),
        is_completed=True,
        is_truncated=False,
        stop_condition="done",
        error=None,
    )
    rows = [state_to_output(state, ["trajectory", "trajectory_id"])]
    save_outputs(rows, folder / "verifiers-0.1.14")


def verl(folder: Path) -> None:
    """What `rollout_data_dir` gets: a multi-turn sample and a plain one."""
    from verl.trainer.ppo.ray_trainer import RayPPOTrainer

    RayPPOTrainer._write_generations(
        inputs=["user\nOpen the menu.\nassistant\n"] * 2,
        outputs=[
            "click\nuser\n<tool_response>ok</tool_response>\nassistant\nDone.",
            "No.",
        ],
        gts=[None, None],
        scores=[1.0, 0.0],
        reward_extra_infos_dict={"acc": [True, False]},
        dump_path=str(folder / "verl-0.9.1_rollouts"),
        global_steps=10,
    )


def mini_swe_agent(folder: Path) -> None:
    """A trajectory with tool calls, and one of the Responses API."""
    from minisweagent.agents.default import DefaultAgent
    from minisweagent.environments.local import LocalEnvironment
    from minisweagent.models import test_models as models

    end = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT && echo done"
    actions = [
        {"command": command, "tool_call_id": str(number)}
        for number, command in enumerate(("echo a.txt", end))
    ]
    calls = [
        {
            "id": one["tool_call_id"],
            "type": "function",
            "function": {
                "name": "bash",
                "arguments": json.dumps({"command": one["command"]}),
            },
        }
        for one in actions
    ]
    chats = [
        models.make_toolcall_output("I look.", calls[:1], actions[:1]),
        models.make_toolcall_output(None, calls[1:], actions[1:]),
    ]
    items = [
        models.make_response_api_output("I look.", actions[:1]),
        models.make_response_api_output(None, actions[1:]),
    ]
    for name, model in {
        "chat": models.DeterministicToolcallModel(outputs=chats),
        "responses": models.DeterministicResponseAPIToolcallModel(outputs=items),
    }.items():
        path = folder / "mini-swe-agent-2.4.6" / f"{name}.traj.json"
        DefaultAgent(
            model,
            LocalEnvironment(),
            system_template="You are an agent.",
            instance_template="Task: {{task}}",
            output_path=path,
        ).run("list the files")


def inspect(folder: Path) -> None:
    """A log of two samples: a tool call on a screenshot, and an answer."""
    from inspect_ai import Task
    from inspect_ai import eval as evaluate
    from inspect_ai.dataset import Sample
    from inspect_ai.model import (
        ChatMessageUser,
        ContentImage,
        ContentText,
        ModelOutput,
        get_model,
    )
    from inspect_ai.scorer import includes
    from inspect_ai.solver import generate, use_tools
    from inspect_ai.tool import tool

    def click() -> Any:
        async def execute(x: int) -> str:
            """Click.

            Args:
                x: From the left.
            """
            return f"clicked {x}"

        return execute

    content = [ContentText(text="Open the menu."), ContentImage(image=URL)]
    task = Task(
        dataset=[
            Sample(id="menu", input=[ChatMessageUser(content=content)], target="Done"),
            Sample(id="file", input="Open a file.", target="Done"),
        ],
        solver=[use_tools(tool(click)()), generate()],
        scorer=includes(),
        name="gui",
    )
    outputs = [
        ModelOutput.for_tool_call("mockllm/model", "click", {"x": 1}),
        ModelOutput.from_content("mockllm/model", "Done."),
        ModelOutput.from_content("mockllm/model", "I do not know."),
    ]
    model = get_model("mockllm/model", custom_outputs=outputs)
    home = folder / "inspect-ai-0.3.285"
    log = evaluate(task, model=model, log_dir=str(home), display="none", max_samples=1)
    Path(log[0].location.removeprefix("file://")).rename(home / "gui.eval")


def browsergym(folder: Path) -> None:
    """An episode: a click, and an answer after which there was an error."""
    import numpy as np
    from browsergym.experiments.agent import AgentInfo
    from browsergym.experiments.loop import EnvArgs, ExpArgs, StepInfo

    home = folder / "browsergym-experiments-0.14.3" / "menu"
    home.mkdir(parents=True, exist_ok=True)
    steps = []
    for number, action in enumerate(("click('12')", "send_msg_to_user('Done.')", None)):
        is_last = action is None
        seen = {
            "goal": "Open the menu.",
            "goal_object": None,
            "last_action_error": "no element" * is_last,
            "axtree_txt": "x",
            "screenshot": np.full((2, 2, 3), 50 * number, dtype=np.uint8),
        }
        reward = float(is_last)
        step = StepInfo(number, seen, reward, reward, is_last, truncated=False)
        step.action, step.stats = action, {}
        if not is_last:
            step.agent_info = AgentInfo(f"thought {number}", stats={"n": np.float64(2)})
        step.save_step_info(home)
        steps.append(step)
    ExpArgs(None, EnvArgs("menu")).save_summary_info(steps, home, None, None)


def browser_use(folder: Path) -> None:
    """A history: a click that fails, a step without an answer, an answer, a judge."""
    from browser_use.agent.views import (
        ActionResult,
        AgentHistory,
        AgentHistoryList,
        AgentOutput,
        JudgementResult,
        StepMetadata,
    )
    from browser_use.browser.views import BrowserStateHistory, TabInfo
    from browser_use.tools.service import Tools

    home = folder / "browser-use-0.13.14"
    (home / "screenshots").mkdir(parents=True, exist_ok=True)
    actions = Tools().registry.create_action_model()
    answer_type = AgentOutput.type_with_custom_actions(actions)
    thought = {"thinking": "The menu is at the top.", "memory": "m1"}
    answers: list[dict[str, Any] | None] = [
        {**thought, "next_goal": "open it", "action": [{"click": {"index": 12}}]},
        None,
        {"memory": "m2", "action": [{"done": {"text": "Done.", "success": True}}]},
    ]
    judged = JudgementResult(verdict=True, reasoning="It is open.")
    last = ActionResult(
        is_done=True,
        success=True,
        extracted_content="Done.",
        judgement=judged,
        images=[{"name": "a.png", "data": PNG}],
    )
    results = [
        ActionResult(error="no element 12"),
        ActionResult(error="the model did not answer"),
        last,
    ]
    steps = []
    for number, (answer, result) in enumerate(zip(answers, results, strict=True), 1):
        file = f"screenshots/step_{number}.png"
        (home / file).write_bytes(base64.b64decode(PNG))
        state = BrowserStateHistory(
            url="http://menu",
            title="Menu",
            tabs=[TabInfo(url="http://menu", title="Menu", target_id="A1B2")],
            interacted_element=[None],
            screenshot_path=f"/home/agent/{file}",  # where it was written
        )
        times = {"step_start_time": 10.0 * number, "step_end_time": 10.0 * number + 2.5}
        step = AgentHistory(
            model_output=answer and answer_type.model_validate(answer),
            result=[result],
            state=state,
            metadata=StepMetadata(**times, step_number=number),
            state_message=f"Open the menu. Step {number}.",
        )
        steps.append(step)
    AgentHistoryList(history=steps).save_to_file(home / "AgentHistory.json")


def art(folder: Path) -> None:
    """Two groups of two trajectories, in both layouts; one has a further history."""
    from art.trajectories import History, Trajectory, TrajectoryGroup
    from art.utils.trajectory_logging import write_trajectory_groups_parquet
    from art.utils.trajectory_migration import serialize_trajectory_groups
    from openai.types.chat.chat_completion import Choice

    def choice(text: str, **message: Any) -> Choice:
        said = {"role": "assistant", "content": text, **message}
        record = {"finish_reason": "stop", "index": 0, "message": said}
        return Choice.model_validate(record)

    def groups(*, has_pictures: bool) -> list[TrajectoryGroup]:
        seen: Any = [
            {"type": "image_url", "image_url": {"url": URL}},
            {"type": "text", "text": "Open the menu."},
        ]
        function = {"name": "click", "arguments": '{"x": 1}'}
        call = {"id": "1", "type": "function", "function": function}
        groups = []
        for group in range(2):
            rows = []
            for number in range(2):
                messages: list[Any] = [
                    {"role": "user", "content": "An example."},
                    {"role": "assistant", "content": "wait()"},
                    {"role": "user", "content": seen if has_pictures else "Open it."},
                    choice("I click.", tool_calls=[call]),
                    {"role": "tool", "content": "ok", "tool_call_id": "1"},
                    choice("Done."),
                ]
                row = Trajectory(
                    messages_and_choices=messages,
                    reward=float(number),
                    initial_policy_version=6,
                    final_policy_version=7,
                    metrics={"duration": 1.5, "success": bool(number)},
                    metadata={"task": f"menu-{group}"},
                    logs=["saved"],
                )
                if has_pictures and number:
                    further = [{"role": "user", "content": "Sum up."}, choice("Short.")]
                    row.additional_histories = [History(messages_and_choices=further)]
                rows.append(row)
            groups.append(TrajectoryGroup(rows))
        return groups

    home = folder / "openpipe-art-0.5.18" / "trajectories" / "train"
    home.mkdir(parents=True, exist_ok=True)
    text = serialize_trajectory_groups(groups(has_pictures=True))
    (home / "0006.jsonl").write_text(text)
    write_trajectory_groups_parquet(groups(has_pictures=False), home / "0007.parquet")


if __name__ == "__main__":
    for name in sys.argv[2:]:
        globals()[name](Path(sys.argv[1]))
