-- Wireshark dissectors for Carina: PDUs of normal DIFs, CDAP, VMPI records. See docs/how-to/capture.md.

local pdu = Proto("rina_pdu", "RINA PDU")
local cdap = Proto("rina_cdap", "RINA CDAP")
local vmpi = Proto("rina_vmpi", "RINA VMPI")

local WIDTHS = { "address", "cep", "qos", "seq", "ctrl_seq", "length", "rate", "frame" }
local DEFAULT = { address = 2, cep = 2, qos = 1, seq = 4, ctrl_seq = 4, length = 2, rate = 4, frame = 4 }
for _, key in ipairs(WIDTHS) do
  pdu.prefs[key] = Pref.uint("Bytes of " .. key, DEFAULT[key], "Field width of the DIF, in bytes")
end
pdu.prefs.delimited = Pref.bool("Delimiting", true, "User data begin with a delimiting header")

local TYPES = { [0x40] = "management", [0x80] = "data", [0xc0] = "control", [0xcf] = "rendezvous" }
-- The same and the control PDUs of rlite and IRATI, whose codes mean different things.
local TYPE_NAMES = {
  [0x40] = "management", [0x80] = "data", [0xc0] = "control", [0xc1] = "control", [0xc4] = "control", [0xc5] = "control",
  [0xc8] = "control", [0xcc] = "control", [0xcf] = "rendezvous",
}
local OPCODES = {
  [0] = "M_CONNECT", "M_CONNECT_R", "M_RELEASE", "M_RELEASE_R", "M_CREATE", "M_CREATE_R", "M_DELETE", "M_DELETE_R",
  "M_READ", "M_READ_R", "M_CANCELREAD", "M_CANCELREAD_R", "M_WRITE", "M_WRITE_R", "M_START", "M_START_R", "M_STOP",
  "M_STOP_R",
}
local VMPI_TYPES = {
  "HELLO", "REGISTER", "UNREGISTER", "ALLOCATE", "ALLOCATE_RESPONSE", "DEALLOCATE", "CREDIT",
}

local function number(name, label)
  return ProtoField.uint64("rina." .. name, label)
end

local f = {
  version = ProtoField.uint8("rina.version", "Version"),
  type = ProtoField.uint8("rina.type", "Type", base.HEX, TYPE_NAMES),
  drf = ProtoField.bool("rina.drf", "Data run flag", 8, nil, 0x80),
  ecn = ProtoField.bool("rina.ecn", "Congestion met", 8, nil, 0x01),
  hop_limit = ProtoField.uint8("rina.hop_limit", "Hop limit"),
  qos = number("qos", "QoS-id"),
  length = number("length", "Length"),
  dst = number("dst", "Destination address"),
  src = number("src", "Source address"),
  dst_cep = number("dst_cep", "Destination CEP-id"),
  src_cep = number("src_cep", "Source CEP-id"),
  seq = number("seq", "Sequence number"),
  ctrl_seq = number("ctrl_seq", "Control sequence number"),
  last_ctrl_seq = number("last_ctrl_seq", "Last control sequence number received"),
  parts = ProtoField.uint8("rina.parts", "Parts", base.HEX),
  next = number("ack.next", "Next expected"),
  cause = number("ack.cause", "Cause"),
  delay = number("ack.delay_us", "Delay (us)"),
  marks = number("ack.ecn_marks", "ECN marks"),
  range_start = number("ack.start", "Received from"),
  range_end = number("ack.end", "Received before"),
  left = number("window.left", "Left edge"),
  right = number("window.right", "Right edge"),
  my_left = number("window.my_left", "My left edge"),
  my_right = number("window.my_right", "My right edge"),
  rate = number("window.rate", "Rate"),
  frame = number("window.frame_ms", "Time frame (ms)"),
  delimiting = ProtoField.string("rina.delimiting", "Delimiting"),
  malformed = ProtoField.string("rina.malformed", "Malformed"),
}
local fields = {}
for _, field in pairs(f) do
  fields[#fields + 1] = field
end
pdu.fields = fields

local c = {
  opcode = ProtoField.uint32("rina.cdap.opcode", "Opcode", base.DEC, OPCODES),
  number = ProtoField.string("rina.cdap.number", "Number"),
  text = ProtoField.string("rina.cdap.text", "Text"),
  bytes = ProtoField.bytes("rina.cdap.bytes", "Bytes"),
}
cdap.fields = { c.opcode, c.number, c.text, c.bytes }

local v = {
  channel = ProtoField.uint16("rina.vmpi.channel", "Channel"),
  more = ProtoField.bool("rina.vmpi.more", "More follows"),
  control = ProtoField.uint8("rina.vmpi.control", "Control message", base.DEC, VMPI_TYPES),
}
vmpi.fields = { v.channel, v.more, v.control }

-- A cursor over a buffer that adds fields to a tree.
local Cursor = {}
Cursor.__index = Cursor

local function cursor(buffer, tree, at)
  return setmetatable({ buffer = buffer, tree = tree, at = at or 0 }, Cursor)
end

-- Takes a field of `width` bytes; nil when the buffer ends before it does.
function Cursor:take(field, width)
  if self.at + width > self.buffer:len() then
    return nil
  end
  local range = self.buffer(self.at, width)
  local value = range:uint64()
  self.tree:add(field, range, value)
  self.at = self.at + width
  return value
end

-- The same for a field whose lowest byte is first.
function Cursor:take_le(field, width)
  if self.at + width > self.buffer:len() then
    return nil
  end
  local range = self.buffer(self.at, width)
  local value = range:le_uint64()
  self.tree:add_le(field, range, value)
  self.at = self.at + width
  return value
end

-- Varints as UInt64, so that negative numbers (10 bytes) are read too.
local function varint(buffer, at)
  local value, factor = UInt64(0), UInt64(1)
  for _ = 1, 10 do
    if at >= buffer:len() then
      return nil
    end
    local byte = buffer(at, 1):uint()
    at = at + 1
    value = value + UInt64(byte % 128) * factor
    if byte < 128 then
      return value, at
    end
    factor = factor * UInt64(128)
  end
  return nil
end

local CDAP_FIELDS = {
  [1] = "Abstract syntax", [2] = "Opcode", [3] = "Invoke id", [4] = "Flags", [5] = "Object class", [6] = "Object name",
  [7] = "Object instance", [8] = "Object value", [9] = "Result", [10] = "Scope", [11] = "Filter",
  [17] = "Authentication mechanism", [18] = "Authentication", [19] = "Destination AE instance", [20] = "Destination AE",
  [21] = "Destination AP instance", [22] = "Destination AP", [23] = "Source AE instance", [24] = "Source AE",
  [25] = "Source AP instance", [26] = "Source AP", [27] = "Reason", [28] = "Version",
}
local CDAP_TEXTS = {
  [5] = true, [6] = true, [19] = true, [20] = true, [21] = true, [22] = true, [23] = true, [24] = true, [25] = true,
  [26] = true, [27] = true,
}

-- The fields of a message as a list; nil when the bytes are none.
local function cdap_fields(buffer)
  local list, at, opcode, name = {}, 0, nil, nil
  while at < buffer:len() do
    local start = at
    local key, value
    key, at = varint(buffer, at)
    if not key then
      return nil
    end
    key = key:tonumber()
    local field, kind = math.floor(key / 8), key % 8
    if not CDAP_FIELDS[field] then
      return nil
    end
    if kind == 0 then
      value, at = varint(buffer, at)
      if not value then
        return nil
      end
      if field == 2 then
        opcode = value:tonumber()
      end
      list[#list + 1] = { field = field, range = buffer(start, at - start), value = value }
    elseif kind == 2 then
      local length
      length, at = varint(buffer, at)
      length = length and length:tonumber()
      if not length or at + length > buffer:len() then
        return nil
      end
      local content = length > 0 and buffer(at, length) or nil
      at = at + length
      if field == 6 and content then
        name = content:string(ENC_UTF_8)
      end
      list[#list + 1] = { field = field, range = buffer(start, at - start), content = content }
    else
      return nil
    end
  end
  if not opcode or not OPCODES[opcode] then
    return nil
  end
  return list, opcode, name
end

-- Shows a message; false when the bytes are none.
local function dissect_cdap(buffer, info, tree)
  if not buffer or buffer:len() == 0 then
    return false
  end
  local list, opcode, name = cdap_fields(buffer)
  if not list then
    return false
  end
  local title = OPCODES[opcode] .. (name and (" " .. name) or "")
  local sub = tree:add(cdap, buffer, "CDAP: " .. title)
  for _, item in ipairs(list) do
    local label = CDAP_FIELDS[item.field] .. ": "
    if item.field == 2 then
      sub:add(c.opcode, item.range, opcode)
    elseif item.value then
      sub:add(c.number, item.range, tostring(item.value)):set_text(label .. tostring(item.value))
    elseif item.content and CDAP_TEXTS[item.field] then
      local text = item.content:string(ENC_UTF_8)
      sub:add(c.text, item.range, text):set_text(label .. text)
    elseif item.content then
      sub:add(c.bytes, item.content):prepend_text(label)
    end
  end
  info.cols.info:append(" " .. title)
  return true
end

function cdap.dissector(buffer, info, tree)
  info.cols.protocol = "CDAP"
  return dissect_cdap(buffer(), info, tree) and buffer:len() or 0
end

-- An SDU: CDAP, or bytes that only an application understands.
local function content(range, info, tree)
  if range and range:len() > 0 and not dissect_cdap(range, info, tree) then
    Dissector.get("data"):call(range:tvb(), info, tree)
  end
end

local function ends(first)
  local text = ""
  if first % 64 >= 32 then
    text = text .. " first"
  end
  if first % 32 >= 16 then
    text = text .. " last"
  end
  return text
end

local function delimited(range, info, tree)
  if not range or range:len() == 0 then
    return
  end
  local first = range(0, 1):uint()
  local kind, size = math.floor(first / 64), range:len()
  if kind == 0 then
    tree:add(f.delimiting, range(0, 1), "whole SDU")
    content(size > 1 and range(1) or nil, info, tree)
  elseif kind == 1 then
    local at = 1
    while at + 2 <= size do
      local length = range(at, 2):uint()
      tree:add(f.delimiting, range(at, 2), "SDU of " .. length .. " bytes")
      at = at + 2
      local there = math.min(length, size - at)
      content(there > 0 and range(at, there) or nil, info, tree)
      at = at + there
    end
  elseif kind == 2 and size >= 2 then
    local index = range(0, 2):uint() % 4096
    tree:add(f.delimiting, range(0, 2), "fragment " .. index .. ends(first))
  elseif kind == 3 and size >= 9 then
    local place = "fragment of SDU " .. range(1, 4):uint() .. " at " .. range(5, 4):uint()
    tree:add(f.delimiting, range(0, 9), place .. ends(first))
  else
    tree:add(f.malformed, range, "delimiting")
  end
end

local function control_part(at, widths)
  at:take(f.ctrl_seq, widths.ctrl_seq)
  at:take(f.last_ctrl_seq, widths.ctrl_seq)
  if at.at >= at.buffer:len() then
    return " cut"
  end
  local parts = at.buffer(at.at, 1):uint()
  at.tree:add(f.parts, at.buffer(at.at, 1))
  at.at = at.at + 1
  local text = ""
  if parts % 2 == 1 then
    local next_expected = at:take(f.next, widths.seq)
    at:take(f.cause, widths.seq)
    at:take(f.delay, 4)
    at:take(f.marks, 2)
    for _ = 1, math.floor(parts / 16) % 8 do
      at:take(f.range_start, widths.seq)
      at:take(f.range_end, widths.seq)
    end
    text = text .. " ack " .. tostring(next_expected)
  end
  if math.floor(parts / 2) % 2 == 1 then
    local left = at:take(f.left, widths.seq)
    local right = at:take(f.right, widths.seq)
    at:take(f.my_left, widths.seq)
    at:take(f.my_right, widths.seq)
    at:take(f.rate, widths.rate)
    at:take(f.frame, widths.frame)
    text = text .. " window " .. tostring(left) .. ".." .. tostring(right)
  end
  return text
end

-- Layouts of rlite and IRATI with their usual widths: where type and length are, and the fields in order.
local OTHERS = {
  {
    name = "rlite", version = 0, type_at = 1, flags_at = 2, length_at = 24, header = 28,
    types = {
      [0x40] = "management", [0x80] = "data", [0xc4] = "control, ack", [0xc8] = "control, window",
      [0xcc] = "control, ack and window",
    },
    fields = {
      { f.seq, 8, 4 }, { f.dst, 12, 4 }, { f.src, 16, 4 }, { f.dst_cep, 20, 2 }, { f.src_cep, 22, 2 }, { f.length, 24, 2 },
      { f.qos, 26, 2 },
    },
    control = { f.last_ctrl_seq, f.next, f.right, f.left, f.my_left, f.my_right },
  },
  {
    name = "IRATI", version = 1, type_at = 11, flags_at = 12, length_at = 13, header = 19,
    types = {
      [0x40] = "management", [0x80] = "data", [0xc1] = "control, ack", [0xc4] = "control, window",
      [0xc5] = "control, ack and window", [0xc0] = "control", [0xcf] = "rendezvous",
    },
    fields = {
      { f.dst, 1, 2 }, { f.src, 3, 2 }, { f.qos, 5, 2 }, { f.dst_cep, 7, 2 }, { f.src_cep, 9, 2 }, { f.length, 13, 2 },
      { f.seq, 15, 4 },
    },
    -- By type: what follows the control sequence number.
    by_type = {
      [0xc1] = { f.next },
      [0xc4] = { f.right, f.my_left, f.my_right, f.rate, f.frame },
      [0xc5] = { f.next, f.last_ctrl_seq, f.left, f.right, f.my_left, f.my_right, f.rate, f.frame },
      [0xc0] = { f.last_ctrl_seq, f.left, f.right, f.my_left, f.my_right, f.rate, f.frame },
    },
  },
}
OTHERS[2].by_type[0xcf] = OTHERS[2].by_type[0xc0]

-- Shows a PDU of another dialect; false when the bytes are none.
local function dissect_other(other, buffer, info, tree)
  local size = buffer:len()
  if size < other.header or buffer(0, 1):uint() ~= other.version then
    return false
  end
  local code = buffer(other.type_at, 1):uint()
  local kind, length = other.types[code], buffer(other.length_at, 2):le_uint()
  -- Behind a PDU there is the padding of a short frame at most.
  if not kind or length < other.header or length > size or (length < size and size > 46) then
    return false
  end
  info.cols.protocol = "RINA " .. other.name
  local sub = tree:add(pdu, buffer(0, length), "RINA " .. kind .. " of " .. other.name)
  sub:add(f.version, buffer(0, 1))
  sub:add(f.type, buffer(other.type_at, 1))
  sub:add(f.drf, buffer(other.flags_at, 1))
  sub:add(f.ecn, buffer(other.flags_at, 1))
  local at, values = cursor(buffer, sub), {}
  local is_control = code >= 0xc0
  for _, field in ipairs(other.fields) do
    at.at = field[2]
    local shown = is_control and field[1] == f.seq and f.ctrl_seq or field[1]
    values[field[1]] = tostring(at:take_le(shown, field[3]))
  end
  local text = kind .. " " .. values[f.src] .. ":" .. values[f.src_cep] .. " > " .. values[f.dst] .. ":" .. values[f.dst_cep]
  text = text .. " seq " .. values[f.seq]
  at.at = other.header
  if is_control then
    for _, field in ipairs(other.control or other.by_type[code]) do
      at:take_le(field, 4)
    end
  end
  sub:append_text(", " .. text)
  info.cols.info = text
  content(not is_control and at.at < length and buffer(at.at, length - at.at) or nil, info, tree)
  return true
end

-- Shows a PDU; false when the bytes are none.
local function dissect_pdu(buffer, info, tree)
  for _, other in ipairs(OTHERS) do
    if dissect_other(other, buffer, info, tree) then
      return true
    end
  end
  local size = buffer:len()
  if size < 4 or buffer(0, 1):uint() ~= 1 or not TYPES[buffer(1, 1):uint()] then
    return false
  end
  local widths, is_delimited = DEFAULT, true
  -- Hop limit 0 is between neighbours: default widths in every DIF.
  if buffer(3, 1):uint() ~= 0 then
    widths, is_delimited = {}, pdu.prefs.delimited
    for _, key in ipairs(WIDTHS) do
      widths[key] = pdu.prefs[key]
    end
  end
  local header = 4 + widths.qos + widths.length + 2 * widths.address + 2 * widths.cep
  if size < header then
    return false
  end
  local length = buffer(4 + widths.qos, widths.length):uint64():tonumber()
  if length < header or length > info.len then
    return false
  end
  local kind = TYPES[buffer(1, 1):uint()]
  info.cols.protocol = "RINA"
  local sub = tree:add(pdu, buffer(0, math.min(length, size)), "RINA " .. kind)
  sub:add(f.version, buffer(0, 1))
  sub:add(f.type, buffer(1, 1))
  sub:add(f.drf, buffer(2, 1))
  sub:add(f.ecn, buffer(2, 1))
  sub:add(f.hop_limit, buffer(3, 1))
  local at = cursor(buffer, sub, 4)
  at:take(f.qos, widths.qos)
  at:take(f.length, widths.length)
  local dst, src = at:take(f.dst, widths.address), at:take(f.src, widths.address)
  local dst_cep, src_cep = at:take(f.dst_cep, widths.cep), at:take(f.src_cep, widths.cep)
  local from, to = tostring(src) .. ":" .. tostring(src_cep), tostring(dst) .. ":" .. tostring(dst_cep)
  local text = kind .. " " .. from .. " > " .. to
  if kind == "control" or kind == "rendezvous" then
    text = text .. control_part(at, widths)
  elseif kind == "data" then
    text = text .. " seq " .. tostring(at:take(f.seq, widths.seq))
  end
  sub:append_text(", " .. text)
  info.cols.info = text
  local stop = math.min(length, size)
  local user = at.at < stop and buffer(at.at, stop - at.at) or nil
  if kind == "data" and is_delimited then
    delimited(user, info, tree)
  elseif kind == "data" or kind == "management" then
    content(user, info, tree)
  end
  return true
end

function pdu.dissector(buffer, info, tree)
  if dissect_pdu(buffer, info, tree) then
    return buffer:len()
  end
  Dissector.get("data"):call(buffer, info, tree)
  return buffer:len()
end

function vmpi.dissector(buffer, info, tree)
  if buffer:len() < 4 then
    return 0
  end
  info.cols.protocol = "VMPI"
  local channel, more = buffer(0, 2):le_uint(), buffer(3, 1):uint() >= 128
  local sub = tree:add(vmpi, buffer(0, 4), "VMPI channel " .. channel)
  sub:add_le(v.channel, buffer(0, 2))
  sub:add(v.more, buffer(3, 1), more)
  if buffer:len() == 4 then
    return 4
  end
  if channel == 0 then
    sub:add(v.control, buffer(4, 1))
    info.cols.info = VMPI_TYPES[buffer(4, 1):uint()] or "unknown control message"
    Dissector.get("data"):call(buffer(4):tvb(), info, tree)
  elseif more or not dissect_pdu(buffer(4):tvb(), info, tree) then
    info.cols.info = "channel " .. channel .. (more and " piece, more follows" or "")
    Dissector.get("data"):call(buffer(4):tvb(), info, tree)
  end
  return buffer:len()
end

local links = DissectorTable.get("wtap_encap")
links:add(wtap.USER0, pdu)
links:add(wtap.USER1, vmpi)
links:add(wtap.USER2, pdu)
DissectorTable.get("ethertype"):add(0xd1f0, pdu)
DissectorTable.get("udp.port"):add(3359, pdu)
