'use strict';

// The messages between the two ends of a ring. The same numbers are in node/src/message.rs, and a
// test compares them.

/** Bytes in front of each payload: its length, kind and flags, and the connection's id. */
const HEADER_BYTES = 16;

/** The most bytes of one message. */
const PAYLOAD_BYTES_MAX = 131072;

/** Bytes of WRITE payload per connection that the lane has not credited yet, at most. */
const WINDOW_OUT = 262144;

/** The same where a lane holds OUT_BYTES_MAX: a credit, and a part that is worth a message. */
const WINDOW_OUT_SCARCE = 98304;

/** Bytes of WRITE payload per lane that it may hold before each connection's window is smaller. */
const OUT_BYTES_MAX = 8 * 1024 * 1024;

/** Bytes of DATA per connection that JavaScript has not credited yet, at most. */
const WINDOW_IN = 262144;

/** Smaller sums of consumed DATA are not worth a message. */
const CREDIT_BYTES_MIN = 65536;

/** Slots that a lane may number: a higher number is no slot of a sound ring. */
const SLOTS_MAX = 1 << 22;

/** From the lane to JavaScript. */
const Event = Object.freeze({
  OPEN: 1,
  DATA: 2,
  END: 3,
  CLOSE: 4,
  CREDIT: 5,
  HELLO: 6,
  FAILED: 7,
  KEYLOG: 8,
  DOWN: 9,
});

/** From JavaScript to the lane. */
const Command = Object.freeze({
  WRITE: 1,
  END: 2,
  DESTROY: 3,
  CREDIT: 4,
  CHOOSE: 5,
  OPTION: 6,
  RESET: 7,
  TAKEN: 8,
});

/** Flags of WRITE and END: the commands behind them. */
const Flag = Object.freeze({ END: 1, DESTROY: 2 });

/** The settings of OPTION. */
const Option = Object.freeze({ NO_DELAY: 1, KEEP_ALIVE: 2 });

/** Flags of OPEN. */
const Opening = Object.freeze({ RESUMED: 1, VERIFIED: 2, DESCRIPTOR: 4, ASKED: 8 });

module.exports = {
  CREDIT_BYTES_MIN,
  Command,
  Event,
  Flag,
  HEADER_BYTES,
  Opening,
  OUT_BYTES_MAX,
  Option,
  PAYLOAD_BYTES_MAX,
  SLOTS_MAX,
  WINDOW_IN,
  WINDOW_OUT,
  WINDOW_OUT_SCARCE,
};
