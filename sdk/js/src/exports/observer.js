// The interface `observer`.

import { Unavailable } from "../errors.js";
import { settled } from "../kind.js";
import { optional } from "../wire.js";
import { boundary, deniedOrOther } from "./boundary.js";
import { unavailable } from "./tools.js";

export const observer = ({ observer: [one] }) => ({
  observe: (events) =>
    boundary(
      () => void settled("observer: observe", one.observe(events.map(eventFrom))),
      observerError,
    ),
});

const eventFrom = ({ room, seq, index, time, kind, task, details }) => ({
  room,
  seq: Number(seq),
  index,
  time: Number(time),
  kind,
  task: optional(task),
  details: JSON.parse(details),
});

const observerError = (error) =>
  error instanceof Unavailable ? unavailable(error) : deniedOrOther(error);
