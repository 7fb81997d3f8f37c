"""Examples of sessions: objects in which a model of video keeps its prompts and what it has seen so far.

The forward of such a model asks its session for the prompts, and leaves in it what it found. The class is that of the
parameter's annotation. One object is prompted, on the first frame.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from extraction.examples.media import image_size
from extraction.examples.tensors import Config, Example

PARAMETER = "inference_session"
_OBJECT, _FRAME = 1, 0


@dataclass(frozen=True)
class Session:
    """Stands for a session. Each call needs a new one, since the forward changes it; its tensors are on `device`."""

    kind: type
    height: int
    width: int
    device: str = "meta"

    def make(self) -> Any:
        """A session with one point on one object."""
        where = ("inference_device", "inference_state_device", "video_storage_device")
        devices = dict.fromkeys(where, self.device)
        session = self.kind(video_height=self.height, video_width=self.width, dtype=torch.float32, **devices)
        points = {
            "point_coords": torch.full((1, 1, 1, 2), float(self.height // 2), device=self.device),
            "point_labels": torch.ones(1, 1, 1, dtype=torch.int32, device=self.device),
        }
        session.add_point_inputs(session.obj_id_to_idx(_OBJECT), _FRAME, points)
        session.obj_with_new_inputs.append(_OBJECT)
        return session


def session_inputs(config: Config, parameters: Mapping[str, inspect.Parameter]) -> dict[str, Any]:
    """A session and a frame for a forward that takes both; nothing for one whose session takes no points."""
    kind = parameters[PARAMETER].annotation if PARAMETER in parameters else None
    if not hasattr(kind, "add_point_inputs") or not {"frame", "frame_idx"} <= parameters.keys():
        return {}
    channels, height, width = image_size(config)
    frame = Example(torch.empty(channels, height, width), (None, None, None))
    return {PARAMETER: Session(kind, height, width), "frame": frame, "frame_idx": _FRAME}
