'use strict';

const assert = require('node:assert');
const { AsyncLocalStorage } = require('node:async_hooks');
const { once } = require('node:events');
const http = require('node:http');
const test = require('node:test');
const message = require('../../lib/message.js');
const { pair, turn } = require('./lane-end.js');

const { Command, Event, Flag, WINDOW_OUT } = message;
const ID = { slot: 0, generation: 5 };

/** A lane with one connection. */
function opened(options, sink) {
  const all = pair(options, sink);
  all.end.open(ID);
  all.lane.drain();
  const [socket] = all.told.sockets;
  return { ...all, socket };
}

/** Commands except those about OPENs. */
async function commands(end) {
  await turn();
  return end.all().filter((command) => command.kind !== Command.TAKEN);
}

test('bytes go in and come out', async () => {
  const { end, lane, socket, told } = opened();
  socket.on('data', (chunk) => socket.write(chunk));
  await turn();
  assert.deepEqual(
    end.all().map((command) => [command.kind, command.payload.readUInt32LE()]),
    [[Command.TAKEN, 1]],
  );
  end.send(Event.DATA, ID, Buffer.from('abc'));
  lane.drain();
  const [write, ...more] = await commands(end);
  assert.equal(more.length, 0);
  assert.deepEqual(
    [write.kind, write.flags, write.slot, write.generation],
    [Command.WRITE, 0, 0, 5],
  );
  assert.equal(write.payload.toString(), 'abc');
  assert.deepEqual([socket.bytesRead, socket.bytesWritten], [3, 3]);
  assert.equal(told.rung, 0);
});

test('every encoding arrives as node encodes it', async () => {
  const { end, socket } = opened();
  const texts = [
    ['Zoë €', 'utf8'],
    ['Zoë', 'latin1'],
    ['Zoë', 'ucs2'],
    ['cafe', 'hex'],
    ['Y2FmZQ==', 'base64'],
    ['é'.repeat(10_000), 'utf8'],
    ['', 'utf8'],
  ];
  for (const [text, encoding] of texts) {
    socket.write(text, encoding);
    const written = Buffer.concat((await commands(end)).map((command) => command.payload));
    assert.deepEqual(written, Buffer.from(text, encoding), encoding);
  }
  socket.cork();
  for (const [text, encoding] of texts) socket.write(text, encoding);
  socket.uncork();
  const written = Buffer.concat((await commands(end)).map((command) => command.payload));
  assert.deepEqual(written, Buffer.concat(texts.map((text) => Buffer.from(...text))));
});

test('write, end and destroy of one tick are one message', async () => {
  const { end, socket } = opened();
  socket.write('bye');
  socket.destroySoon();
  const all = await commands(end);
  assert.deepEqual(
    all.map((command) => [command.kind, command.flags, command.payload.toString()]),
    [[Command.WRITE, Flag.END | Flag.DESTROY, 'bye']],
  );
});

test('destroy without an end is told as such, whatever came before it', async () => {
  const { end, socket } = opened();
  socket.write('half of it');
  socket.destroy();
  const all = await commands(end);
  assert.deepEqual(
    all.map((command) => [command.kind, command.flags]),
    [
      [Command.WRITE, 0],
      [Command.DESTROY, 0],
    ],
  );
});

test('destroy some time after the end still lets what was sent arrive', async () => {
  const { end, socket } = opened();
  socket.end('last');
  assert.deepEqual(
    (await commands(end)).map((command) => [command.kind, command.flags]),
    [[Command.WRITE, Flag.END]],
  );
  socket.destroy();
  assert.deepEqual(
    (await commands(end)).map((command) => [command.kind, command.flags]),
    [[Command.END, Flag.DESTROY]],
  );
});

test('resetAndDestroy resets', async () => {
  const { end, socket } = opened();
  socket.resetAndDestroy();
  const [had] = await once(socket, 'close');
  assert.equal(had, false);
  assert.deepEqual(
    (await commands(end)).map((command) => command.kind),
    [Command.RESET],
  );
});

test('a write waits for the window, and for nothing else', async () => {
  const { end, lane, socket } = opened();
  const large = Buffer.alloc(WINDOW_OUT + 100_000, 'x');
  let done = false;
  assert.equal(
    socket.write(large, () => (done = true)),
    false,
  );
  let first = await commands(end);
  assert.equal(
    first.reduce((sum, command) => sum + command.payload.length, 0),
    WINDOW_OUT,
  );
  assert.equal(done, false);
  assert.equal(socket.bytesWritten, large.length);
  end.sendWord(Event.CREDIT, ID, 65_536);
  lane.drain();
  first = await commands(end);
  assert.equal(
    first.reduce((sum, command) => sum + command.payload.length, 0),
    65_536,
  );
  assert.equal(done, false);
  const drained = once(socket, 'drain');
  end.sendWord(Event.CREDIT, ID, WINDOW_OUT);
  lane.drain();
  await drained;
  assert.equal(done, true);
  first = await commands(end);
  assert.equal(
    first.reduce((sum, command) => sum + command.payload.length, 0),
    100_000 - 65_536,
  );
});

test('many clients that do not read get a smaller window each', async () => {
  const { OUT_BYTES_MAX, WINDOW_OUT_SCARCE } = message;
  const { end, lane, told } = pair();
  const ids = Array.from({ length: 40 }, (_, slot) => ({ slot, generation: 1 }));
  for (const id of ids) {
    end.open(id);
    lane.drain();
  }
  let done = 0;
  for (const socket of told.sockets) socket.write(Buffer.alloc(WINDOW_OUT), () => (done += 1));
  const given = ids.map(() => 0);
  const take = async () => {
    for (let all = await commands(end); all.length > 0; all = await commands(end)) {
      for (const { kind, slot, payload } of all) {
        if (kind === Command.WRITE) given[slot] += payload.length;
      }
      if (end.commands.wakes()) lane.drain();
    }
  };
  await take();
  assert.ok(Math.min(...given) >= WINDOW_OUT_SCARCE);
  const total = given.reduce((sum, bytes) => sum + bytes, 0);
  assert.strictEqual(lane.outBytes, total);
  const scarce = ids.length - OUT_BYTES_MAX / WINDOW_OUT;
  assert.ok(total <= OUT_BYTES_MAX + WINDOW_OUT + scarce * WINDOW_OUT_SCARCE, `${total} bytes`);
  for (const id of ids) end.sendWord(Event.CREDIT, id, given[id.slot]);
  lane.drain();
  await take();
  assert.strictEqual(done, ids.length);
  for (const socket of told.sockets) socket.destroy();
  assert.strictEqual(lane.outBytes, 0);
});

test('who does not read gets no more than the window, and credits what he has read', async () => {
  const { end, lane, socket } = opened({ highWaterMark: 1000 });
  socket.pause();
  const chunk = Buffer.from('0123456789');
  for (let sent = 0; sent < 200_000; sent += chunk.length) {
    end.send(Event.DATA, ID, chunk);
    if (sent % 10_000 === 0) lane.drain();
    if (sent % 1000 === 0) await turn();
  }
  lane.drain();
  await turn();
  assert.deepEqual(await commands(end), []);
  assert.ok(socket.readableLength <= 1000 + chunk.length, `${socket.readableLength} bytes`);
  let bytes = 0;
  socket.on('data', (part) => (bytes += part.length));
  socket.resume();
  await turn();
  assert.equal(bytes, 200_000);
  const credits = (await commands(end)).filter((command) => command.kind === Command.CREDIT);
  const sum = credits.reduce((total, command) => total + command.payload.readUInt32LE(), 0);
  assert.ok(sum > 200_000 - 65_536 && sum <= 200_000, `${sum} credited`);
});

test('the end comes behind all that was held', async () => {
  const { end, lane, socket } = opened({ highWaterMark: 10 });
  const big = Buffer.alloc(50_000, 'a');
  end.send(Event.DATA, ID, big);
  end.send(Event.DATA, ID, big);
  end.send(Event.END, ID);
  end.sendWord(Event.CLOSE, ID, 0);
  lane.drain();
  await turn();
  await turn();
  let bytes = 0;
  for await (const chunk of socket) bytes += chunk.length;
  assert.equal(bytes, 100_000);
  assert.equal(socket.destroyed, true);
});

for (const allowHalfOpen of [false, true]) {
  test(`a client leaves without a word; half open ${allowHalfOpen}`, async () => {
    const { end, lane, socket } = opened({ allowHalfOpen });
    const seen = [];
    for (const event of ['end', 'error', 'finish']) socket.on(event, () => seen.push(event));
    socket.on('close', (had) => seen.push(`close ${had}`));
    socket.resume();
    end.sendWord(Event.CLOSE, ID, 2);
    lane.drain();
    await once(socket, 'close');
    assert.deepEqual(seen, ['end', 'finish', 'close false']);
    assert.deepEqual(await commands(end), []);
  });
}

test('a reset is ECONNRESET', async () => {
  const { end, lane, socket } = opened();
  end.sendWord(Event.CLOSE, ID, 1);
  lane.drain();
  const [error] = await once(socket, 'error');
  assert.deepEqual([error.code, error.syscall, error.errno], ['ECONNRESET', 'read', -104]);
  const [had] = await once(socket, 'close');
  assert.equal(had, true);
});

test('writing to a connection that is gone is EPIPE', async () => {
  const { end, lane, socket } = opened({ allowHalfOpen: true });
  end.sendWord(Event.CLOSE, ID, 0);
  lane.drain();
  socket.write('late');
  const [error] = await once(socket, 'error');
  assert.equal(error.code, 'EPIPE');
});

test('a write that waits when the connection goes fails', async () => {
  const { end, lane, socket } = opened();
  let failed;
  socket.on('error', () => {});
  socket.write(Buffer.alloc(2 * WINDOW_OUT), (error) => (failed = error));
  end.sendWord(Event.CLOSE, ID, 2);
  lane.drain();
  await turn();
  assert.equal(failed.code, 'EPIPE');
});

test('an id that is gone, or of another generation, reaches nobody', async () => {
  const { end, lane, socket, told } = opened();
  socket.on('data', () => assert.fail('not for this socket'));
  end.send(Event.DATA, { slot: 0, generation: 4 }, Buffer.from('old'));
  end.send(Event.DATA, { slot: 7, generation: 5 }, Buffer.from('never was'));
  end.send(Event.DATA, { slot: -1, generation: -1 }, Buffer.from('nor this'));
  lane.drain();
  await turn();
  socket.destroy();
  end.send(Event.DATA, ID, Buffer.from('late'));
  end.send(Event.END, ID);
  end.sendWord(Event.CLOSE, ID, 1);
  const again = { slot: 0, generation: 6 };
  end.open(again);
  end.send(Event.DATA, again, Buffer.from('new'));
  lane.drain();
  const [, next] = told.sockets;
  const [chunk] = await once(next, 'data');
  assert.equal(chunk.toString(), 'new');
});

test('a listener that throws loses its own event only', async () => {
  const { end, lane, socket, told } = opened();
  const other = { slot: 1, generation: 1 };
  end.open(other);
  lane.drain();
  const got = [];
  socket.on('data', () => {
    throw new Error('of the listener');
  });
  told.sockets[1].on('data', (chunk) => got.push(chunk.toString()));
  await turn();
  const thrown = [];
  const caught = (error) => thrown.push(error.message);
  for (let i = 0; i < 3; i++) {
    end.send(Event.DATA, ID, Buffer.alloc(100_000));
    end.send(Event.DATA, other, Buffer.from(String(i)));
  }
  process.prependOnceListener('uncaughtException', caught);
  const listeners = process.listeners('uncaughtException').filter((one) => one !== caught);
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', caught);
  setImmediate(() => lane.drain());
  for (let i = 0; i < 8; i++) await turn();
  process.removeAllListeners('uncaughtException');
  for (const listener of listeners) process.on('uncaughtException', listener);
  assert.deepEqual(got, ['0', '1', '2']);
  assert.deepEqual(thrown, Array(3).fill('of the listener'));
  const credits = (await commands(end)).filter((command) => command.kind === Command.CREDIT);
  assert.equal(credits.length, 3);
});

test('promises of one event come before the next event of that socket', async () => {
  const { end, lane, socket } = opened();
  const got = [];
  const reading = (async () => {
    while (got.length < 50) {
      const [chunk] = await once(socket, 'data');
      got.push(chunk.toString());
    }
  })();
  for (let i = 0; i < 50; i++) end.send(Event.DATA, ID, Buffer.from(String(i)));
  await turn();
  lane.drain();
  await reading;
  assert.deepEqual(
    got,
    Array.from({ length: 50 }, (_, i) => String(i)),
  );
});

test('a flood does not keep others from their turn', async () => {
  const { end, lane, told } = pair();
  const ids = Array.from({ length: 2000 }, (_, slot) => ({ slot, generation: 1 }));
  for (const id of ids) end.open(id);
  lane.drain();
  const afterOne = told.sockets.length;
  assert.ok(afterOne <= 512, `${afterOne} in one turn`);
  for (let i = 0; told.sockets.length < 2000; i++) {
    assert.ok(i < 2000);
    await turn();
  }
});

test('a full ring keeps order and loses nothing', async () => {
  const { end, lane, told } = pair();
  const ids = Array.from({ length: 20 }, (_, slot) => ({ slot, generation: 1 }));
  for (const id of ids) end.open(id);
  lane.drain();
  await turn();
  end.all();
  const bytes = 100_003;
  for (const socket of told.sockets) {
    socket.write(Buffer.alloc(bytes, String.fromCharCode(65 + (socket.remotePort % 20))));
    socket.end('!');
  }
  await turn();
  assert.ok(lane.stalledCount > 0);
  let ticks = 0;
  lane.tick = function () {
    ticks += 1;
    Object.getPrototypeOf(this).tick.call(this);
  };
  for (let i = 0; i < 20; i++) await turn();
  assert.ok(ticks <= 2, `${ticks} ticks for nothing`);
  const parts = ids.map(() => []);
  const ended = new Set();
  for (let i = 0; i < 200 && ended.size < 20; i++) {
    for (const command of end.all()) {
      parts[command.slot].push(command.payload);
      if (command.flags & Flag.END || command.kind === Command.END) ended.add(command.slot);
    }
    // As a lane does after reading: only a waiting side is woken.
    if (end.commands.wakes()) lane.drain();
    await turn();
  }
  assert.equal(ended.size, 20);
  for (const part of parts) assert.equal(Buffer.concat(part).length, bytes + 1);
  assert.equal(lane.stalledCount, 0);
});

test('what is held is not credited, though the credit waited for room', async () => {
  const { end, lane, told } = pair({ highWaterMark: 16_384 });
  const ids = Array.from({ length: 8 }, (_, slot) => ({ slot, generation: 1 }));
  for (const id of ids) end.open(id);
  lane.drain();
  const reader = told.sockets[0];
  reader.on('data', () => {});
  await turn();
  end.all();
  for (const socket of told.sockets.slice(1)) socket.write(Buffer.alloc(WINDOW_OUT));
  await turn();
  assert.ok(lane.stalledCount > 0);
  const give = async (bytes) => {
    end.send(Event.DATA, ids[0], Buffer.alloc(bytes));
    lane.drain();
    await turn();
  };
  // Read at once, read into the stream's own buffer, and held.
  await give(70_000);
  reader.pause();
  await give(60_000);
  await give(50_000);
  let credited = 0;
  for (let i = 0; i < 200 && (i < 10 || lane.stalledCount > 0); i++) {
    for (const { kind, payload, slot } of end.all()) {
      if (kind === Command.CREDIT && slot === 0) credited += payload.readUInt32LE();
    }
    if (end.commands.wakes()) lane.drain();
    await turn();
  }
  assert.equal(lane.stalledCount, 0);
  assert.equal(credited, 130_000);
  reader.resume();
  await turn();
  await give(50_000);
  for (const { kind, payload } of end.all()) {
    if (kind === Command.CREDIT) credited += payload.readUInt32LE();
  }
  assert.equal(credited, 230_000);
});

test('what waits in the rings can be asked, and not once they are given back', async () => {
  const { end, lane, socket } = opened();
  const message = 16 + 32;
  await commands(end);
  end.send(Event.DATA, ID, Buffer.alloc(32));
  assert.deepEqual(lane.depths(), { commandsDepth: 0, eventsDepth: message });
  socket.write(Buffer.alloc(32));
  assert.deepEqual(lane.depths(), { commandsDepth: message, eventsDepth: message });
  lane.release();
  assert.deepEqual(lane.depths(), { commandsDepth: 0, eventsDepth: 0 });
});

test('no context leaks from one connection into another', async () => {
  const storage = new AsyncLocalStorage();
  const seen = [];
  const { end, lane, told } = pair(
    {},
    {
      open: (_lane, socket) => {
        seen.push(['open', storage.getStore()]);
        told.sockets.push(socket);
        storage.enterWith(`opened ${told.sockets.length}`);
        socket.on('data', (chunk) => {
          seen.push([chunk.toString(), storage.getStore()]);
          if (chunk.toString() === 'enter') storage.enterWith('entered');
          storage.run('inside', () => socket.write('from inside'));
        });
      },
    },
  );
  const ids = [0, 1, 2].map((slot) => ({ slot, generation: 1 }));
  for (const id of ids.slice(0, 2)) end.open(id);
  lane.drain();
  await turn();
  end.send(Event.DATA, ids[0], Buffer.from('enter'));
  end.send(Event.DATA, ids[1], Buffer.from('b'));
  lane.drain();
  // The tick that the write has scheduled finds these.
  end.open(ids[2]);
  end.send(Event.DATA, ids[1], Buffer.from('c'));
  end.send(Event.DATA, ids[0], Buffer.from('d'));
  await turn();
  // Node 24 forgets at the end of a listener the context entered there, earlier ones do not.
  const own = {
    open: [],
    enter: ['opened 1'],
    b: ['opened 2'],
    c: ['opened 2'],
    d: ['entered'],
  };
  assert.deepEqual(
    seen.map(([what]) => what),
    ['open', 'open', 'enter', 'b', 'open', 'c', 'd'],
  );
  for (const [what, store] of seen) {
    assert.ok(store === undefined || own[what].includes(store), `${store} in ${what}`);
  }
});

test('hellos are answered once there is room, failures are told', async () => {
  const { end, lane, told } = pair();
  const failed = Buffer.alloc(32);
  failed.writeUInt32LE(5, 0);
  failed.writeUInt32LE(4, 4);
  failed.writeUInt32LE(4711, 8);
  failed.writeUInt32LE(4, 12);
  Buffer.from([192, 0, 2, 9]).copy(failed, 16);
  end.send(Event.HELLO, { slot: 3, generation: 9 }, Buffer.from('a.example'));
  end.send(
    Event.FAILED,
    { slot: 4, generation: 9 },
    Buffer.concat([failed, Buffer.from('CODEwhy')]),
  );
  lane.drain();
  assert.equal(told.hellos[0].name, 'a.example');
  assert.deepEqual(told.failed, [
    {
      authorizationError: 'CODE',
      cause: 5,
      label: 'not_tls',
      remoteAddress: '192.0.2.9',
      remoteFamily: 'IPv4',
      remotePort: 4711,
      message: 'why',
    },
  ]);
  told.hellos[0].answer(2 ** 32 + 7);
  told.hellos[0].answer(null);
  told.hellos[0].answer(-1);
  const answers = await commands(end);
  assert.deepEqual(
    answers.map(({ kind, slot, generation, payload }) => [
      kind,
      slot,
      generation,
      payload.readBigUInt64LE(),
    ]),
    [2n ** 32n + 7n, 0n, 2n ** 64n - 1n].map((answer) => [Command.CHOOSE, 3, 9, answer]),
  );
});

test('a lane that ends takes its connections with it', async () => {
  const { end, lane, socket, told } = opened();
  end.send(Event.DOWN, { slot: 0, generation: 0 }, Buffer.from('it panicked'));
  lane.drain();
  const [error] = await once(socket, 'error');
  assert.equal(error.code, 'ERR_SEALANE_INTERNAL');
  assert.deepEqual(told.down, ['it panicked']);
  socket.write('nobody hears');
  await turn();
  assert.deepEqual(
    end.all().map((command) => command.kind),
    [],
  );
});

test('a ring that holds nonsense ends the lane with the reason', async () => {
  for (const spoil of [
    (end) => end.send(99, ID),
    (end) => end.open({ slot: -5, generation: 1 }),
    (end) => end.open({ slot: 0, generation: 8 }),
    (end) => Atomics.store(end.events.words, 0, 1 << 30),
    (end, lane) => {
      Atomics.store(end.commands.words, 32, 1 << 19);
      // So that it looks.
      lane.commands.oldest -= 1 << 20;
    },
  ]) {
    const { end, lane, socket, told } = opened();
    socket.on('error', () => {});
    spoil(end, lane);
    socket.write('x');
    lane.drain();
    await turn();
    assert.equal(told.down.length, 1, String(spoil));
    assert.match(told.down[0], /broken/);
    assert.equal(socket.destroyed, true);
  }
});

test("node's http server serves on it", async () => {
  const server = http.createServer((request, response) => {
    request.resume();
    request.on('end', () => response.end(`${request.method} ${request.url}`));
  });
  const { end, lane } = pair(
    { allowHalfOpen: true },
    {
      open: (_lane, socket) => server.emit('connection', socket),
    },
  );
  end.open(ID);
  end.send(Event.DATA, ID, Buffer.from('GET /a HTTP/1.1\r\nHost: x\r\n\r\n'));
  lane.drain();
  const [first] = await commands(end);
  assert.match(first.payload.toString(), /^HTTP\/1.1 200 OK[\s\S]*GET \/a$/);
  assert.equal(first.flags, 0);
  end.send(Event.DATA, ID, Buffer.from('GET /b HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n'));
  lane.drain();
  const [last, ...more] = await commands(end);
  assert.match(last.payload.toString(), /GET \/b$/);
  assert.equal(last.flags, Flag.END | Flag.DESTROY);
  assert.equal(more.length, 0);
});

test('any order of events, writes, ends and destroys: no stale event, no hang', async () => {
  let state = 20_251;
  const random = (below) => {
    state = (Math.imul(state, 1_103_515_245) + 12_345) & 0x7fffffff;
    return (state >>> 8) % below;
  };
  const live = new Map();
  const { end, lane } = pair(
    { highWaterMark: 100 },
    {
      open: (_lane, socket) => {
        const mark = socket.remotePort;
        socket.on('error', () => {});
        socket.on('data', (chunk) => {
          assert.equal(chunk.readUInt32LE(), mark);
        });
        if (random(4) === 0) socket.pause();
        live.set(mark, socket);
        socket.on('close', () => live.delete(mark));
      },
    },
  );
  const slots = Array.from({ length: 16 }, () => ({ generation: 0, open: false, mark: 0 }));
  let marks = 0;
  for (let step = 0; step < 20_000; step++) {
    const slot = random(16);
    const it = slots[slot];
    const id = { slot, generation: it.generation };
    const payload = Buffer.alloc(4 * (1 + random(30)));
    for (let at = 0; at < payload.length; at += 4) payload.writeUInt32LE(it.mark, at);
    const choice = random(8);
    if (!it.open) {
      it.generation += 1;
      marks = (marks % 60_000) + 1;
      it.mark = marks;
      it.open = true;
      end.open({ slot, generation: it.generation }, { remotePort: it.mark });
    } else if (choice < 3) {
      end.send(Event.DATA, id, payload);
    } else if (choice === 3) {
      end.sendWord(Event.CREDIT, id, 100);
    } else if (choice === 4) {
      end.sendWord(Event.CLOSE, id, random(5));
      it.open = false;
    }
    const sockets = [...live.values()];
    const socket = sockets[random(sockets.length || 1)];
    if (socket !== undefined) {
      const act = random(6);
      if (act === 0) socket.write('w'.repeat(random(5000)));
      if (act === 1) socket.destroy();
      if (act === 2) socket.end();
      if (act === 3) socket.resume();
      if (act === 4 && random(9) === 0) socket.write(Buffer.alloc(400_000));
    }
    if (random(3) === 0) lane.drain();
    if (random(8) === 0) {
      await turn();
      end.all();
      if (end.commands.wakes()) lane.drain();
    }
  }
  for (const [slot, it] of slots.entries()) {
    if (it.open) end.sendWord(Event.CLOSE, { slot, generation: it.generation }, 1);
  }
  lane.drain();
  for (let i = 0; i < 50; i++) {
    for (const socket of live.values()) socket.resume();
    await turn();
  }
  assert.equal(live.size, 0);
});
