-- Lua's patterns, implemented in Lua: `string.find`, `match`, `gmatch` and `gsub` after the Lua
-- 5.1 reference manual (section 5.4.1). A hook can interrupt Lua code, but not LuaJIT's own C code.

local byte, char, sub = string.byte, string.char, string.sub
local plain_find, format = string.find, string.format
local concat, error, floor = table.concat, error, math.floor
local tostring, type, unpack = tostring, type, unpack

local ESCAPE, CAPTURES_MAX, DEPTH_MAX = 37, 32, 200
-- Most byte comparisons of one plain search that C code may do, since no hook can interrupt it.
local PLAIN_MAX = 1000000

-- Character classes, in the C locale.
local function between(c, from, to)
  return c >= from and c <= to
end
local function is_letter(c)
  return between(c, 65, 90) or between(c, 97, 122)
end
local function is_digit(c)
  return between(c, 48, 57)
end
local classes = {
  a = is_letter,
  c = function(c) return c < 32 or c == 127 end,
  d = is_digit,
  l = function(c) return between(c, 97, 122) end,
  p = function(c) return between(c, 33, 126) and not (is_letter(c) or is_digit(c)) end,
  s = function(c) return c == 32 or between(c, 9, 13) end,
  u = function(c) return between(c, 65, 90) end,
  w = function(c) return is_letter(c) or is_digit(c) end,
  x = function(c) return is_digit(c) or between(c, 65, 70) or between(c, 97, 102) end,
  z = function(c) return c == 0 end,
}

-- Tests by the class letter; the upper-case letter negates the class.
local tests = {}
for letter, test in pairs(classes) do
  tests[byte(letter)] = test
  tests[byte(letter) - 32] = function(c) return not test(c) end
end

local function is_of_class(c, class)
  local test = tests[class]
  if test then return test(c) end
  return c == class
end

-- The position behind the single character class at `p`.
local function class_end(pattern, p)
  local c = byte(pattern, p)
  p = p + 1
  if c == ESCAPE then
    if p > #pattern then error("malformed pattern (ends with '%')", 0) end
    return p + 1
  elseif c == 91 then
    if byte(pattern, p) == 94 then p = p + 1 end
    repeat
      local inside = byte(pattern, p)
      if not inside then error("malformed pattern (missing ']')", 0) end
      p = p + 1
      if inside == ESCAPE then p = p + 1 end
    until byte(pattern, p) == 93
    return p + 1
  end
  return p
end

-- Whether byte `c` is in the set between the brackets at `p` and `last`.
local function is_in_set(c, pattern, p, last)
  local is_wanted = true
  if byte(pattern, p + 1) == 94 then
    is_wanted, p = false, p + 1
  end
  p = p + 1
  while p < last do
    local from = byte(pattern, p)
    if from == ESCAPE then
      p = p + 1
      if is_of_class(c, byte(pattern, p)) then return is_wanted end
    elseif byte(pattern, p + 1) == 45 and p + 2 < last then
      if between(c, from, byte(pattern, p + 2)) then return is_wanted end
      p = p + 2
    elseif from == c then
      return is_wanted
    end
    p = p + 1
  end
  return not is_wanted
end

local function is_single_match(state, s, p, after)
  local c = byte(state.subject, s)
  if not c then return false end
  local first = byte(state.pattern, p)
  if first == 46 then return true end
  if first == ESCAPE then return is_of_class(c, byte(state.pattern, p + 1)) end
  if first == 91 then return is_in_set(c, state.pattern, p, after - 1) end
  return first == c
end

-- The captures of a match from `s` to before `after`; without captures, the whole match.
local function captures(state, s, after)
  local found = {}
  for at = 1, state.level do
    local from, length = state.from[at], state.length[at]
    if length == "position" then
      found[at] = from
    elseif length then
      found[at] = sub(state.subject, from, from + length - 1)
    else
      error("unfinished capture", 0)
    end
  end
  if state.level == 0 and s then found[1] = sub(state.subject, s, after - 1) end
  return found
end

local match

local function most(state, s, p, after)
  local n = 0
  while is_single_match(state, s + n, p, after) do n = n + 1 end
  while n >= 0 do
    local found = match(state, s + n, after + 1)
    if found then return found end
    n = n - 1
  end
  return nil
end

local function least(state, s, p, after)
  while true do
    local found = match(state, s, after + 1)
    if found then return found end
    if not is_single_match(state, s, p, after) then return nil end
    s = s + 1
  end
end

local function balanced(state, s, p)
  local open, close = byte(state.pattern, p, p + 1)
  if not close then error("unbalanced pattern", 0) end
  if byte(state.subject, s) ~= open then return nil end
  local depth, at = 1, s + 1
  while at <= #state.subject do
    local c = byte(state.subject, at)
    if c == close then
      depth = depth - 1
      if depth == 0 then return at + 1 end
    elseif c == open then
      depth = depth + 1
    end
    at = at + 1
  end
  return nil
end

local function open_capture(state, s, p, length)
  if state.level >= CAPTURES_MAX then error("too many captures", 0) end
  state.level = state.level + 1
  state.from[state.level], state.length[state.level] = s, length
  local found = match(state, s, p)
  if not found then state.level = state.level - 1 end
  return found
end

local function close_capture(state, s, p)
  local at = state.level
  while at > 0 and state.length[at] do at = at - 1 end
  if at == 0 then error("invalid pattern capture", 0) end
  state.length[at] = s - state.from[at]
  local found = match(state, s, p)
  if not found then state.length[at] = false end
  return found
end

local function repeated(state, s, digit)
  local at = digit - 48
  local length = at >= 1 and at <= state.level and state.length[at]
  if not length or length == "position" then error("invalid capture index", 0) end
  local from = state.from[at]
  local text = sub(state.subject, from, from + length - 1)
  if sub(state.subject, s, s + length - 1) ~= text then return nil end
  return s + length
end

-- Matches the pattern from `p` on at `s`: returns the position behind the match, or nil.
function match(state, s, p)
  state.depth = state.depth + 1
  if state.depth > DEPTH_MAX then error("pattern too complex", 0) end
  local pattern, found = state.pattern, nil
  while true do
    local c = byte(pattern, p)
    local following = byte(pattern, p + 1)
    if not c then
      found = s
      break
    elseif c == 40 then
      if following == 41 then
        found = open_capture(state, s, p + 2, "position")
      else
        found = open_capture(state, s, p + 1, false)
      end
      break
    elseif c == 41 then
      found = close_capture(state, s, p + 1)
      break
    elseif c == 36 and not following then
      found = s == #state.subject + 1 and s or nil
      break
    elseif c == ESCAPE and following == 98 then
      s = balanced(state, s, p + 2)
      if not s then break end
      p = p + 4
    elseif c == ESCAPE and following == 102 then
      p = p + 2
      if byte(pattern, p) ~= 91 then error("missing '[' after '%f' in pattern", 0) end
      local after = class_end(pattern, p)
      local before = s == 1 and 0 or byte(state.subject, s - 1)
      local here = byte(state.subject, s) or 0
      if is_in_set(before, pattern, p, after - 1) or not is_in_set(here, pattern, p, after - 1) then
        break
      end
      p = after
    elseif c == ESCAPE and following and is_digit(following) then
      s = repeated(state, s, following)
      if not s then break end
      p = p + 2
    else
      local after = class_end(pattern, p)
      local suffix = byte(pattern, after)
      if suffix == 63 then
        if is_single_match(state, s, p, after) then
          found = match(state, s + 1, after + 1)
          if found then break end
        end
        p = after + 1
      elseif suffix == 42 then
        found = most(state, s, p, after)
        break
      elseif suffix == 43 then
        found = is_single_match(state, s, p, after) and most(state, s + 1, p, after) or nil
        break
      elseif suffix == 45 then
        found = least(state, s, p, after)
        break
      elseif is_single_match(state, s, p, after) then
        s, p = s + 1, after
      else
        break
      end
    end
  end
  state.depth = state.depth - 1
  return found
end

local function new_state(subject, pattern)
  return { subject = subject, pattern = pattern, level = 0, from = {}, length = {}, depth = 0 }
end

local function text_of(value, name, number)
  if type(value) == "number" then return tostring(value) end
  if type(value) ~= "string" then
    local text = "bad argument #%d to '%s' (string expected, got %s)"
    error(format(text, number, name, type(value)), 3)
  end
  return value
end

local function start_of(init, length)
  init = init or 1
  if init < 0 then init = init + length + 1 end
  return floor(init < 1 and 1 or init)
end

-- Finds the first match from `init` on: returns its start, its end, and the state with captures.
local function search(subject, pattern, init)
  local state = new_state(subject, pattern)
  local p = 1
  local is_anchored = byte(pattern, 1) == 94
  if is_anchored then p = 2 end
  local s = init
  while s <= #subject + 1 do
    state.level, state.depth = 0, 0
    local after = match(state, s, p)
    if after then return s, after, state end
    if is_anchored then break end
    s = s + 1
  end
  return nil
end

local function find_plainly(subject, text, init)
  if (#subject - init + 2) * (#text + 1) <= PLAIN_MAX then
    return plain_find(subject, text, init, true)
  end
  for s = init, #subject - #text + 1 do
    if byte(subject, s) == byte(text, 1) and sub(subject, s, s + #text - 1) == text then
      return s, s + #text - 1
    end
  end
  return nil
end

local made = {}

function made.find(subject, pattern, init, is_plain)
  subject, pattern = text_of(subject, "find", 1), text_of(pattern, "find", 2)
  init = start_of(init, #subject)
  if is_plain then
    if init > #subject + 1 then return nil end
    return find_plainly(subject, pattern, init)
  end
  local s, after, state = search(subject, pattern, init)
  if not s then return nil end
  return s, after - 1, unpack(captures(state), 1, state.level)
end

function made.match(subject, pattern, init)
  subject, pattern = text_of(subject, "match", 1), text_of(pattern, "match", 2)
  local s, after, state = search(subject, pattern, start_of(init, #subject))
  if not s then return nil end
  return unpack(captures(state, s, after))
end

function made.gmatch(subject, pattern)
  subject, pattern = text_of(subject, "gmatch", 1), text_of(pattern, "gmatch", 2)
  local at = 1
  return function()
    while at <= #subject + 1 do
      local state = new_state(subject, pattern)
      local s = at
      local after = match(state, s, 1)
      if after then
        at = after == s and s + 1 or after
        return unpack(captures(state, s, after))
      end
      at = at + 1
    end
    return nil
  end
end

local function replacement(state, s, after, by)
  local kind = type(by)
  local whole = sub(state.subject, s, after - 1)
  local value
  if kind == "function" then
    value = by(unpack(captures(state, s, after)))
  elseif kind == "table" then
    value = by[captures(state, s, after)[1]]
  else
    local found, parts, at = captures(state, s, after), {}, 1
    while at <= #by do
      local c = byte(by, at)
      if c ~= ESCAPE then
        parts[#parts + 1] = char(c)
      else
        at = at + 1
        local digit = byte(by, at)
        if not digit or not is_digit(digit) then
          parts[#parts + 1] = digit and char(digit) or ""
        elseif digit == 48 then
          parts[#parts + 1] = whole
        else
          local capture = found[digit - 48]
          if not capture then error("invalid capture index", 0) end
          parts[#parts + 1] = tostring(capture)
        end
      end
      at = at + 1
    end
    return concat(parts)
  end
  if not value then return whole end
  if type(value) ~= "string" and type(value) ~= "number" then
    error("invalid replacement value (a " .. type(value) .. ")", 0)
  end
  return tostring(value)
end

function made.gsub(subject, pattern, by, most_of_them)
  subject, pattern = text_of(subject, "gsub", 1), text_of(pattern, "gsub", 2)
  if type(by) ~= "function" and type(by) ~= "table" then by = text_of(by, "gsub", 3) end
  local p, is_anchored = 1, byte(pattern, 1) == 94
  if is_anchored then p = 2 end
  local parts, count, s = {}, 0, 1
  while not most_of_them or count < most_of_them do
    local state = new_state(subject, pattern)
    local after = match(state, s, p)
    if after then
      count = count + 1
      parts[#parts + 1] = replacement(state, s, after, by)
    end
    if after and after > s then
      s = after
    elseif s <= #subject then
      parts[#parts + 1] = sub(subject, s, s)
      s = s + 1
    else
      break
    end
    if is_anchored then break end
  end
  parts[#parts + 1] = sub(subject, s)
  return concat(parts), count
end

return made
