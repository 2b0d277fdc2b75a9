-- The functions that a script gets: links, packets, counters, time.
--
-- Only this chunk has `ffi`. A script gets these functions and no cdata, so it can reach only
-- what they check. `crates/packet/lua/src/block.rs` declares the same shared block in Rust.
--
-- A packet is a number. Its low bits are its place in the arrays of the block, the bits above
-- identify the call that made it visible. Each place stores the number of its packet, or NaN. One
-- comparison therefore detects a packet that was sent, freed, or kept from an earlier call.
-- Numbers need no allocation, and LuaJIT compiles the comparison and the bounds check to a few
-- instructions. `packet.length` and `packet.data[i]` can be written as in Snabb: numbers have a
-- metatable for this.

local ffi, bit, address, host = ...
local band, bnot, bor = bit.band, bit.bnot, bit.bor
local lshift, rshift = bit.lshift, bit.rshift
local copy, fill, string_of = ffi.copy, ffi.fill, ffi.string
local error, floor, format = error, math.floor, string.format
local tostring, type = tostring, type

-- Reads and writes numbers of two and four bytes with one access, and swaps their bytes, because
-- x86-64 is little-endian. x86-64 allows this at any address. LuaJIT's compiler compares each
-- memory access with all earlier ones of its trace: with access byte by byte, it took 15 ms for a
-- trace with some twenty numbers.
local cast, bswap = ffi.cast, bit.bswap
local u16p, i32p = ffi.typeof("uint16_t *"), ffi.typeof("int32_t *")

ffi.cdef [[
struct carina_lua_block {
  double now;               /* seconds */
  double base;              /* what numbers of packets of this call begin at */
  uint32_t inputs, outputs; /* ports */
  uint32_t counters;        /* counters in use */
  uint32_t is_counted;      /* a counter has changed */
  uint32_t sent;            /* entries of sent_place and sent_to */
  uint32_t made;            /* new packets that were taken, ever; wraps */
  uint32_t ready;           /* new packets that were laid ready, ever; wraps */
  uint32_t pad;
  uint32_t first[64];       /* of each input: the place of its first packet, */
  uint32_t waiting[64];     /* how many wait, */
  uint32_t taken[64];       /* how many of these were received */
  int32_t room[64];         /* of each output */
  double counter[64];
  double handle[1024];      /* of each place: the packet's number, */
  uint8_t *data[1024];      /* its first byte, */
  uint32_t length[1024];
  uint32_t headroom[1024];
  uint32_t tailroom[1024];
  uint32_t is_reshaped[1024]; /* 1 when one of the three lengths has changed */
  uint32_t sent_place[1024];
  uint32_t sent_to[1024];
};
]]
assert(ffi.sizeof("struct carina_lua_block") == host.block_bytes, "the block has another layout")

local block = ffi.cast("struct carina_lua_block *", address)
local handles, data, lengths = block.handle, block.data, block.length
local headrooms, tailrooms, reshaped = block.headroom, block.tailroom, block.is_reshaped
local firsts, waiting, taken, room = block.first, block.waiting, block.taken, block.room
local sent_place, sent_to, counters = block.sent_place, block.sent_to, block.counter
local PLACES, MADE, OUTPUT = 1023, 512, 64
local NOTHING = 0 / 0

-- Errors. Their position is the line in the script, three levels up.

local function not_a_packet(p)
  if type(p) ~= "number" then
    error("not a packet: " .. tostring(p), 3)
  end
  error("this packet was sent or freed, or is of an earlier call", 3)
end

local function outside(p, at, count)
  if type(at) ~= "number" or type(count) ~= "number" then
    error("bytes " .. tostring(at) .. ", " .. tostring(count) .. " of a packet: must be numbers", 3)
  end
  local length = lengths[band(p, PLACES)]
  error(format("%g bytes at %g of a packet of %g", count, at, length), 3)
end

local function no_port(l, what)
  error("no " .. what .. ": " .. tostring(l), 3)
end

local function is_inside(at, count, length)
  return type(at) == "number" and type(count) == "number" and at >= 0 and count >= 0
    and at + count <= length
end

-- Packets.

local packet = {}

function packet.length(p)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  return lengths[i]
end

-- As in Snabb; `p.data` has the same value.
function packet.data(p)
  return p
end

function packet.u8(p, at)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(at, 1, lengths[i]) then outside(p, at, 1) end
  return data[i][at]
end

function packet.u16(p, at)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(at, 2, lengths[i]) then outside(p, at, 2) end
  return rshift(bswap(cast(u16p, data[i] + at)[0]), 16)
end

function packet.u32(p, at)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(at, 4, lengths[i]) then outside(p, at, 4) end
  local value = bswap(cast(i32p, data[i] + at)[0])
  return rshift(value, 16) * 65536 + band(value, 65535)
end

function packet.set_u8(p, at, value)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(at, 1, lengths[i]) then outside(p, at, 1) end
  data[i][at] = band(value, 255)
end

function packet.set_u16(p, at, value)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(at, 2, lengths[i]) then outside(p, at, 2) end
  cast(u16p, data[i] + at)[0] = rshift(bswap(band(value, 65535)), 16)
end

function packet.set_u32(p, at, value)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(at, 4, lengths[i]) then outside(p, at, 4) end
  cast(i32p, data[i] + at)[0] = bswap(value)
end

-- Returns `count` bytes from `at` on as a string (default: all bytes to the end).
function packet.bytes(p, at, count)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  at = at or 0
  if count == nil and type(at) == "number" then count = lengths[i] - at end
  if not is_inside(at, count, lengths[i]) then outside(p, at, count) end
  return string_of(data[i] + at, count)
end

function packet.set_bytes(p, at, bytes)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if type(bytes) ~= "string" then error("bytes must be a string", 2) end
  if not is_inside(at, #bytes, lengths[i]) then outside(p, at, #bytes) end
  copy(data[i] + at, bytes, #bytes)
end

-- The Internet checksum (RFC 1071) of `count` bytes from `at` on.
function packet.checksum(p, at, count)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(at, count, lengths[i]) then outside(p, at, count) end
  local d, sum, n = data[i] + at, 0, floor(count)
  local words = cast(u16p, d)
  -- Sums words in the machine's byte order, and swaps the result. (RFC 1071 §2, B)
  for word = 0, floor(n / 2) - 1 do
    sum = sum + words[word]
  end
  if n % 2 == 1 then sum = sum + d[n - 1] end
  sum = sum % 65536 + floor(sum / 65536)
  sum = sum % 65536 + floor(sum / 65536)
  return rshift(bswap(band(bnot(sum), 65535)), 16)
end

-- Removes `count` bytes from the front of the packet.
function packet.shiftleft(p, count)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(0, count, lengths[i]) then outside(p, 0, count) end
  count = floor(count)
  -- A frame can begin at most 65535 bytes into its cell.
  if headrooms[i] + count > 65535 then
    error(format("%g bytes are more than can be taken off", count), 2)
  end
  data[i] = data[i] + count
  lengths[i] = lengths[i] - count
  headrooms[i] = headrooms[i] + count
  reshaped[i] = 1
  return p
end

-- Adds `count` zero bytes at the front of the packet.
function packet.shiftright(p, count)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if not is_inside(0, count, headrooms[i]) then
    local text = "no room for %s bytes in front: there is for %g"
    error(format(text, tostring(count), headrooms[i]), 2)
  end
  count = floor(count)
  data[i] = data[i] - count
  lengths[i] = lengths[i] + count
  headrooms[i] = headrooms[i] - count
  reshaped[i] = 1
  fill(data[i], count)
  return p
end

-- Sets the packet's length; added bytes are zeros.
function packet.resize(p, length)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  local was = lengths[i]
  if not is_inside(0, length, was + tailrooms[i]) then
    error(format("a packet of %s bytes: there is room for %g", tostring(length),
      was + tailrooms[i]), 2)
  end
  length = floor(length)
  if length > was then fill(data[i] + was, length - was) end
  tailrooms[i] = tailrooms[i] + was - length
  lengths[i] = length
  reshaped[i] = 1
  return p
end

function packet.prepend(p, bytes)
  if type(bytes) ~= "string" then error("bytes must be a string", 2) end
  packet.shiftright(p, #bytes)
  copy(data[band(p, PLACES)], bytes, #bytes)
  return p
end

function packet.append(p, bytes)
  if type(bytes) ~= "string" then error("bytes must be a string", 2) end
  local was = packet.length(p)
  packet.resize(p, was + #bytes)
  copy(data[band(p, PLACES)] + was, bytes, #bytes)
  return p
end

-- Returns a new, empty packet; nil if the pool is empty or this call has made its maximum.
function packet.allocate()
  local n = block.made
  if n == block.ready then
    host.refill()
    if n == block.ready then return nil end
  end
  block.made = n + 1
  local i = MADE + band(n, MADE - 1)
  local p = block.base + i
  handles[i] = p
  return p
end

function packet.from_string(bytes)
  if type(bytes) ~= "string" then error("bytes must be a string", 2) end
  local p = packet.allocate()
  if p then
    packet.resize(p, #bytes)
    copy(data[band(p, PLACES)], bytes, #bytes)
  end
  return p
end

function packet.clone(p)
  local length = packet.length(p)
  local other = packet.allocate()
  if other then
    packet.resize(other, length)
    copy(data[band(other, PLACES)], data[band(p, PLACES)], length)
  end
  return other
end

function packet.free(p)
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  handles[i] = NOTHING
end

local function index(p, key)
  if type(key) == "number" then
    local i = band(p, PLACES)
    if handles[i] ~= p then not_a_packet(p) end
    if not (key >= 0 and key < lengths[i]) then outside(p, key, 1) end
    return data[i][key]
  elseif key == "length" then
    local i = band(p, PLACES)
    if handles[i] ~= p then not_a_packet(p) end
    return lengths[i]
  elseif key == "data" then
    return p
  end
  return packet[key]
end

local function set_index(p, key, value)
  local i = band(p, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  if key == "length" then
    packet.resize(p, value)
    return
  end
  if not is_inside(key, 1, lengths[i]) then outside(p, key, 1) end
  data[i][key] = band(value, 255)
end

host.set_number_metatable({ __index = index, __newindex = set_index, __metatable = false })

-- Links. An input is its index; an output is its index plus 64.

local link = {}

function link.nreadable(l)
  if type(l) ~= "number" or not (l >= 0 and l < block.inputs) then no_port(l, "input") end
  return waiting[l] - taken[l]
end

function link.empty(l)
  if type(l) ~= "number" or not (l >= 0 and l < block.inputs) then no_port(l, "input") end
  return taken[l] == waiting[l]
end

-- Returns the oldest waiting packet, or nil if none waits.
function link.receive(l)
  if type(l) ~= "number" or not (l >= 0 and l < block.inputs) then no_port(l, "input") end
  local n = taken[l]
  if n == waiting[l] then return nil end
  taken[l] = n + 1
  return handles[firsts[l] + n]
end

function link.nwritable(l)
  local o = type(l) == "number" and l - OUTPUT or -1
  if not (o >= 0 and o < block.outputs) then no_port(l, "output") end
  return room[o]
end

function link.full(l)
  local o = type(l) == "number" and l - OUTPUT or -1
  if not (o >= 0 and o < block.outputs) then no_port(l, "output") end
  return room[o] <= 0
end

-- Puts a packet on an output. If the link is full, it drops and counts the packet.
function link.transmit(l, p)
  local o = type(l) == "number" and l - OUTPUT or -1
  if not (o >= 0 and o < block.outputs) then no_port(l, "output") end
  local i = band(type(p) == "number" and p or -1, PLACES)
  if handles[i] ~= p then not_a_packet(p) end
  handles[i] = NOTHING
  local n = block.sent
  sent_place[n] = i
  sent_to[n] = o
  block.sent = n + 1
  room[o] = room[o] - 1
end

-- Counters; `carina top` shows them as APP/NAME.

local counter = {}

function counter.create(name)
  local c, reason = host.counter(tostring(name))
  if not c then error(reason, 2) end
  return c
end

function counter.add(c, n)
  if type(c) ~= "number" or not (c >= 0 and c < block.counters) then
    error("no counter: " .. tostring(c), 2)
  end
  counters[c] = counters[c] + (n or 1)
  block.is_counted = 1
end

function counter.set(c, n)
  if type(c) ~= "number" or not (c >= 0 and c < block.counters) then
    error("no counter: " .. tostring(c), 2)
  end
  counters[c] = n
  block.is_counted = 1
end

function counter.read(c)
  if type(c) ~= "number" or not (c >= 0 and c < block.counters) then
    error("no counter: " .. tostring(c), 2)
  end
  return counters[c]
end

local engine = {}

-- When this call began, in seconds since an arbitrary fixed time.
function engine.now()
  return block.now
end

return { packet = packet, link = link, counter = counter, engine = engine }
