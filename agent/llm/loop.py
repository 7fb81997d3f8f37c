"""The agent: ask the model, run the tools that it calls, save, until it submits or a limit is reached."""

import time
from collections.abc import Callable

from pydantic_ai.messages import ModelRequest, ModelResponse, RetryPromptPart, ToolCallPart, UserPromptPart

from agent.author import Attempt
from agent.llm.budget import Budget
from agent.llm.options import LlmOptions
from agent.llm.prompt import CUT_OFF, NO_CALL, SYSTEM
from agent.llm.provider import UNKNOWN_PRICE, NoAnswer, OutOfTime, Provider, Refused, Unreachable
from agent.llm.state import Exit, State
from agent.llm.task import describe_sample
from agent.llm.tools import Tools
from storage.errors import PassNetError
from storage.records import Sample

_PATIENCE = 5
"""An attempt ends after so many useless steps in a row: no call, no call that fits, or the same call as before."""


class Loop:
    """Runs one attempt, from its start or a saved state. `save` is called after every answer and round of tools."""

    def __init__(
        self,
        sample: Sample,
        state: State,
        attempt: Attempt,
        provider: Provider,
        options: LlmOptions,
        budget: Budget,
        save: Callable[[State], None],
    ) -> None:
        self.sample, self.state, self.attempt, self.provider = sample, state, attempt, provider
        self.options, self.budget = options, budget
        self.tools = Tools(sample, state, attempt)
        self._save_state = save
        self._clock = time.monotonic()
        self._failed_earlier = state.failed_calls
        self._useless: list[Exit] = []
        self._last_calls: list[tuple[str, str]] = []

    def run(self) -> None:
        """Run the attempt to its end. Raises PassNetError if the run must stop: its budget, a bad key, no answers."""
        state = self.state
        failed_before, state.exit = state.exit is Exit.PROVIDER_FAILED, Exit.RUNNING
        if not state.messages:
            prompt = UserPromptPart(describe_sample(self.sample, self.attempt.device))
            state.messages.append(ModelRequest([prompt], instructions=SYSTEM))
        while state.exit is Exit.RUNNING:
            if isinstance(state.messages[-1], ModelResponse):
                state.exit = self._act(state.messages[-1])
            elif (limit := self._limit()) is not None:
                state.exit = limit
            else:
                self.budget.check()
                state.exit = self._ask(failed_before)
                failed_before = False
            self._save()

    def _ask(self, failed_before: bool) -> Exit:
        """One answer of the model: a step."""
        state = self.state
        try:
            answer = self.provider.ask(state.messages, self.tools.definitions, self._deadline(), self.budget.answered)
        except OutOfTime:
            return Exit.TIME_LIMIT
        except Refused as error:
            if not self.budget.answers:  # it has never answered, so the fault is not in this conversation
                raise PassNetError(f"the provider refuses the first call: {error}") from None
            state.error = str(error)
            return Exit.REFUSED
        except NoAnswer as error:
            state.error, state.exit = str(error), Exit.PROVIDER_FAILED
            if failed_before:  # twice at the same step: it is this conversation, and others may do better
                return Exit.PROVIDER_FAILED
            self._save()
            where = f" at {self.options.base_url}" if self.options.base_url else ""
            if isinstance(error, Unreachable):
                raise PassNetError(
                    f"the provider{where} is not reached ({error}): check its address and that it runs, then run the "
                    "same command again"
                ) from None
            raise PassNetError(
                f"no answer from the provider{where} ({error}): run the same command again to go on"
            ) from None
        response, cost = answer
        usage = response.usage
        if cost is None and (self.options.cost_usd or self.options.run_cost_usd):
            raise PassNetError(UNKNOWN_PRICE)
        state.messages.append(response)
        state.steps += 1
        state.error = ""
        state.input_tokens += usage.input_tokens
        state.output_tokens += usage.output_tokens
        state.cost_usd = None if cost is None or state.cost_usd is None else state.cost_usd + cost
        self.budget.add(cost or 0.0)
        return Exit.RUNNING

    def _act(self, response: ModelResponse) -> Exit:
        """Run the calls of an answer, in order."""
        parts, calls = [], response.tool_calls
        for call in calls:
            self.state.tool_calls += 1
            parts.append(self.tools.call(call))
        if response.finish_reason == "length":
            parts.append(UserPromptPart(CUT_OFF))
        if not calls:
            parts.append(UserPromptPart(NO_CALL))
        self.state.messages.append(ModelRequest(parts))
        names = ", ".join(call.tool_name for call in calls) or "no call"
        timed = not self.attempt.device.startswith("cpu")
        best = f", best AS {self.state.best:.3f}" if timed and self.state.best is not None else ""
        self.attempt.say(f"step {self.state.steps}: {names[:80]}{best}")
        if self.tools.submitted:
            return Exit.SUBMITTED
        return self._patience(calls, all(isinstance(part, RetryPromptPart) for part in parts))

    def _patience(self, calls: list[ToolCallPart], malformed: bool) -> Exit:
        """RUNNING; after too many useless steps in a row, the exit that says what was wrong with the last."""
        written = [(call.tool_name, call.args_as_json_str()) for call in calls]
        repeated, self._last_calls = written == self._last_calls, written
        useless = Exit.NO_CALLS if not calls else Exit.MALFORMED if malformed else Exit.LOOP if repeated else None
        self._useless = [*self._useless, useless] if useless else []
        return useless if len(self._useless) >= _PATIENCE else Exit.RUNNING

    def _limit(self) -> Exit | None:
        """The limit of the attempt that is reached, if one is."""
        state, options = self.state, self.options
        if state.steps >= options.steps:
            return Exit.STEP_LIMIT
        if options.tokens is not None and state.input_tokens + state.output_tokens >= options.tokens:
            return Exit.TOKEN_LIMIT
        if options.cost_usd is not None and (state.cost_usd or 0.0) >= options.cost_usd:
            return Exit.COST_LIMIT
        deadline = self._deadline()
        return Exit.TIME_LIMIT if deadline is not None and time.monotonic() >= deadline else None

    def _deadline(self) -> float | None:
        """The time of `time.monotonic` at which the attempt's time is up, earlier runs counted. None: no limit."""
        if self.options.seconds is None:
            return None
        return self._clock + self.options.seconds - self.state.seconds

    def _save(self) -> None:
        now = time.monotonic()
        self.state.seconds += now - self._clock
        self.state.failed_calls = self._failed_earlier + self.provider.failed_calls
        self.budget.add_seconds(now - self._clock)
        self._clock = now
        self._save_state(self.state)
