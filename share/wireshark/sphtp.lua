-- SphTP in Wireshark: a dissector for the control plane over TCP, and for the datagrams of channels
-- and streams over UDP. docs/how-to/look-at-packets.md tells how to use it.
--
-- Theory of operation
--
-- The layouts below are the tables of docs/reference/wire, row by row, and a field has the name that
-- it has there: `ack_bits` of a packet is the filter `sphtp.ack_bits`, `host` of a parameter is
-- `sphtp.parameter.host`. One function, `Cursor:read`, reads a row and adds it to the tree.
--
-- This file checks the rules of those pages that one message alone can break. The first broken rule
-- ends the reading with an error of its own kind, a Malformed. The tree then has all that came before,
-- and the expert information `sphtp.malformed` with the reason. Errors of any other kind are defects of
-- this file, and reach the user as errors of Lua.
--
-- No port says that a datagram is SphTP. So the heuristic reads the whole datagram with a tree that
-- keeps nothing, and claims it only if no rule is broken and the rules bind enough bits, about 32.
-- `RULES` has the figures. What binds fewer, such as the 13 bytes of an acknowledgement, is
-- claimed only behind a datagram that is certain, between the same two addresses and ports. A TCP
-- connection is claimed by the eight bytes with which the sockets of nanomsg and NNG begin.
--
-- A sealed datagram is decrypted with the keys of a key log. The same functions then read its content,
-- from a tvb of its own.
--
-- A section that is a block exports the names declared in front of it; Lua allows 200 names in one block.
-- All numbers are little-endian, except two of the transport below the control plane: the protocol in a
-- greeting, and the length of a message.

local sphtp = Proto("sphtp", "SphTP")
local expert = ProtoExpert.new("sphtp.malformed", "Malformed", expert.group.MALFORMED, expert.severity.ERROR)
sphtp.experts = { expert }

-- Fields ------------------------------------------------------------------------------------------

local fields = {}

-- A row of a table: its field, and how many bytes it has. Rows that share a name share a field.
local function declare(name, kind, size, display, values, mask)
  if not fields[name] then
    local title = name:match("[^.]+$"):gsub("_", " ")
    title = title:sub(1, 1):upper() .. title:sub(2)
    fields[name] = ProtoField.new(title, "sphtp." .. name, kind, values, display, mask)
  end
  return { name = name:match("[^.]+$"), field = fields[name], size = size, kind = kind }
end

-- A field is as wide as the widest row of its name: `count` has two, four or eight bytes.
local WIDE = { ["parameter.count"] = true }

local function number(name, size, values, display)
  local is_wide = size > 4 or WIDE[name]
  return declare(name, is_wide and ftypes.UINT64 or ftypes.UINT32, size, display or base.DEC, values)
end

local function hex(name, size) return number(name, size, nil, base.HEX) end
local function bytes(name, size) return declare(name, ftypes.BYTES, size, base.NONE) end
local function text(name, size) return declare(name, ftypes.STRING, size, base.NONE) end
local function bit(name, mask, width)
  return declare(name, ftypes.BOOLEAN, 1, width or 8, nil, mask)
end

-- Cursors -----------------------------------------------------------------------------------------

local Malformed = {}

local function malformed(reason, ...)
  error(setmetatable({ reason = reason:format(...) }, Malformed), 0)
end

local function require_that(condition, reason, ...)
  if not condition then malformed(reason, ...) end
end

-- A place in a tvb, and where what is read there ends.
local Cursor = {}
Cursor.__index = Cursor

local function cursor(tvb, at, stop) return setmetatable({ tvb = tvb, at = at, stop = stop }, Cursor) end

function Cursor:left() return self.stop - self.at end

-- Step over bytes; return the place where they start.
function Cursor:take(size, what)
  require_that(size <= self:left(), "%s is cut off: %d of %d bytes are left", what, self:left(), size)
  local start = self.at
  self.at = start + size
  return start
end

function Cursor:part(size, what)
  local start = self:take(size, what)
  return cursor(self.tvb, start, start + size)
end

function Cursor:peek() return self.tvb(self.at, 1):uint() end

-- Add a row to a tree. Return its value, and its item. A row without a size goes on to the end.
function Cursor:read(tree, row)
  local size = row.size or self:left()
  local start = self:take(size, row.name)
  if size == 0 then return "", tree:add(row.field, ""):set_generated() end
  local range = self.tvb(start, size)
  if row.kind == ftypes.UINT32 then return range:le_uint(), tree:add_le(row.field, range) end
  if row.kind == ftypes.UINT64 then return range:le_uint64(), tree:add_le(row.field, range) end
  if row.kind == ftypes.BOOLEAN then return range:uint(), tree:add(row.field, range) end
  if row.kind == ftypes.STRING then
    return range:string(ENC_UTF_8), tree:add_packet_field(row.field, range, ENC_UTF_8)
  end
  return range, tree:add(row.field, range)
end

-- Add rows, one behind the other. Return their values by name.
function Cursor:read_all(tree, rows)
  local values = {}
  for _, row in ipairs(rows) do values[row.name] = self:read(tree, row) end
  return values
end

-- A number of one, two or four bytes that only says how many bytes or items follow.
function Cursor:length(size, what) return self.tvb(self:take(size, what), size):le_uint() end

function Cursor:text(tree, row, size)
  return self:part(self:length(size, row.name), row.name):read(tree, row)
end

function Cursor:branch(tree, title, size)
  return tree:add(self.tvb(self.at, math.min(size or self:left(), self:left())), title)
end

-- A tree that keeps nothing, for the readings whose result nobody sees.
local NO_TREE = setmetatable({}, {
  __index = function() return function(tree) return tree end end,
})

-- The notes on a datagram or message: its packet, the words for the column Info, and what was read of it.
local function notes(pinfo) return { pinfo = pinfo, words = {} } end
local function note(about, ...) table.insert(about.words, string.format(...)) end

-- The distance from one number up to another, modulo 2^32: only the low 32 bits of both travel.
local WRAP = 2 ^ 32
local function behind(high, low) return (high - low) % WRAP end

-- Names of numbers --------------------------------------------------------------------------------

local KINDS = {
  [0] = "DATA", "CONNECT", "ACCEPT", "REFUSE", "GREET", "COOKIE", "WELCOME", "CONFIRM", "SEALED",
  "RESET", "CHALLENGE", "RESPONSE", "STREAM", "FEEDBACK",
}
local FRAMES = {
  "MESSAGES", "FRAGMENT", "UNRELIABLE", "PING", "CLOSE", "RUN", "CREDIT", "SKIP", "PADDING", "ACK_DELAY",
}
local REFUSALS = { "FULL", "WRONG_PEER", "GONE", "SCHEMA", "VERSION", "SEALED", "CLEAR", "DENIED" }
local PATTERNS = { "IK", "XX", "XXpsk0" }
local BODIES = { "DATA", "SESSION", "NCF", "NAK", "STATUS" }
local RECORDS = { "RUN", "VARIED", "FRAGMENT" }
local CONFIRMATIONS = { [0] = "NO_RETRY", "IGNORED", "RX_DELAY", "SHED" }
local CLOSINGS = { [0] = "DONE", "ABORTED" }
local STATES = { "JOINING", "ACTIVE" }
local REASONS = {
  [0] = "OTHER", [1] = "CONFLICT", [2] = "FULL", [4] = "DENIED", [5] = "UNKNOWN", [6] = "VERSION",
  [7] = "STALE_DATA", [8] = "LEFT", [9] = "EXPIRED",
}

-- Payloads, in frames of channels and records of streams -------------------------------------------

local function read_payloads(at, tree, row, lengths, look)
  for _, length in ipairs(lengths) do
    local part = at:part(length, "payload")
    if look and length > 0 then look(at.tvb:raw(part.at, length)) end
    part:read(tree, row)
  end
end

local function read_lengths(at, count)
  local lengths = {}
  for index = 1, count do lengths[index] = at:length(2, "length") end
  return lengths
end

local function repeated(length, count)
  local lengths = {}
  for index = 1, count do lengths[index] = length end
  return lengths
end

-- Channels: frames --------------------------------------------------------------------------------

local read_packet, learn_from

do
local LANE = number("frame.lane", 1)
local LANE_BITS = {
  declare("frame.lane.number", ftypes.UINT8, 1, base.DEC, nil, 0x3f),
  bit("frame.lane.flag", 0x80),
}
local FRAME_KIND = number("frame.kind", 1, FRAMES)
local FIRST_ID, COUNT, LENGTH =
  number("frame.first_id", 2), number("frame.count", 2), number("frame.length", 2)
local PAYLOAD = bytes("frame.payload")
local FRAGMENT = { number("frame.message_id", 2), number("frame.offset", 4), number("frame.total", 4) }
local CREDIT = { number("frame.messages", 4), number("frame.bytes", 8) }
local SKIP = { number("frame.message_id", 2), number("frame.size", 4) }
local CLOSE_REASON, CLOSE_TEXT = number("frame.reason", 1, CLOSINGS), text("frame.text")
local DELAY, PADDING, SIZE = number("frame.delay", 2), bytes("frame.padding"), number("frame.size", 4)

local function read_lane(at, tree)
  local _, item = at:read(tree, LANE)
  for _, row in ipairs(LANE_BITS) do item:add(row.field, at.tvb(at.at - 1, 1)) end
end

-- The payloads of a frame take two bytes each for their lengths, but no byte at all in a RUN of empty
-- ones. So a packet may have no more payloads than bytes; otherwise a small one would cost much work.
local function read_messages(at, tree)
  read_lane(at, tree)
  at:read(tree, FIRST_ID)
  local count = at:read(tree, COUNT)
  require_that(count > 0, "there is no message in a frame of messages")
  return count
end

local function count_messages(packet, count)
  packet.messages = packet.messages + count
  require_that(packet.messages <= packet.size, "a packet has more messages than bytes")
end

local READ_FRAME = {
  MESSAGES = function(at, tree, packet)
    local count = read_messages(at, tree)
    count_messages(packet, count)
    read_payloads(at, tree, PAYLOAD, read_lengths(at, count), packet.look)
  end,
  RUN = function(at, tree, packet)
    local count = read_messages(at, tree)
    count_messages(packet, count)
    read_payloads(at, tree, PAYLOAD, repeated(at:read(tree, LENGTH), count), packet.look)
  end,
  UNRELIABLE = function(at, tree)
    read_payloads(at, tree, PAYLOAD, read_lengths(at, read_messages(at, tree)))
  end,
  FRAGMENT = function(at, tree)
    read_lane(at, tree)
    local values = at:read_all(tree, FRAGMENT)
    local length = at:read(tree, LENGTH)
    require_that(length > 0, "a fragment has no bytes")
    require_that(values.offset + length <= values.total, "a fragment reaches beyond its message")
    at:part(length, "payload"):read(tree, PAYLOAD)
  end,
  PING = function() end,
  CLOSE = function(at, tree)
    at:read(tree, CLOSE_REASON)
    at:text(tree, CLOSE_TEXT, 1)
  end,
  CREDIT = function(at, tree) at:read_all(tree, CREDIT) end,
  SKIP = function(at, tree)
    read_lane(at, tree)
    at:read_all(tree, SKIP)
  end,
  PADDING = function(at, tree)
    tree:add(SIZE.field, at:left() + 1):set_generated()
    at:read(tree, PADDING)
  end,
  ACK_DELAY = function(at, tree)
    local _, item = at:read(tree, DELAY)
    item:append_text(" (100 us each)")
  end,
}

local PACKET = { number("sequence", 2), number("ack", 2), hex("ack_bits", 4) }

function read_packet(at, tree, about)
  local packet = { size = at.stop - at.start, messages = 0 }
  if about.is_opened then packet.look = function(payload) learn_from(payload, about.id) end end
  local header = at:read_all(tree, PACKET)
  note(about, "seq=%d ack=%d", header.sequence, header.ack)
  while at:left() > 0 do
    local kind = at:peek()
    local name = FRAMES[kind]
    local branch = at:branch(tree, name or "Frame")
    local start = at.at
    at:read(branch, FRAME_KIND)
    require_that(name, "there is no frame of kind %d", kind)
    READ_FRAME[name](at, branch, packet)
    branch:set_len(at.at - start)
    note(about, "%s", name)
    about.has_messages = about.has_messages or name == "RUN" or name == "MESSAGES" or name == "FRAGMENT"
  end
end
end

local TAG_SIZE = 16

-- Opening: AES-256-GCM and HKDF in Lua ------------------------------------------------------------
--
-- Wireshark has had ciphers for Lua since version 4.4 only, so they are written out here: AES (FIPS
-- 197) by tables of a round on 32 bits, GCM (NIST SP 800-38D) by tables of the multiples of H, and
-- SHA-256 (FIPS 180-4) with HMAC (RFC 2104) for the keys of later epochs. That opens a datagram of 1200
-- bytes in about a millisecond, which does for looking at captures. It protects nothing: this file only
-- reads, and takes no care of side channels.

local open_sealed

do
-- Lua 5.2 has a library for bits, and later versions have operators, which 5.2 cannot even read.
local bits = bit32 or load([[return {
  band = function(a, b) return a & b end,
  bxor = function(a, b, c, d, e) return a ~ b ~ (c or 0) ~ (d or 0) ~ (e or 0) end,
  bnot = function(a) return ~a & 0xffffffff end,
  lshift = function(a, n) return a << n & 0xffffffff end,
  rshift = function(a, n) return a >> n end,
  rrotate = function(a, n) return (a >> n | a << (32 - n)) & 0xffffffff end,
}]])()
local band, bxor, bnot, lshift, rshift, rrotate =
  bits.band, bits.bxor, bits.bnot, bits.lshift, bits.rshift, bits.rrotate

-- AES: the table of substitution, and four tables that substitute and mix a column at once.
local SUBSTITUTE, MIX = {}, { {}, {}, {}, {} }

do
  local function double(byte) return band(byte * 2, 0xff) == byte * 2 and byte * 2 or bxor(byte * 2, 0x11b) end
  -- p runs through all powers of 3, and q through those of its inverse.
  local p, q = 1, 1
  repeat
    p = bxor(double(p), p)
    q = band(bxor(q, q * 2), 0xff)
    q = band(bxor(q, q * 4), 0xff)
    q = band(bxor(q, q * 16), 0xff)
    if q >= 0x80 then q = bxor(q, 0x09) end
    local spread = bxor(bxor(q * 2, q * 4), bxor(q * 8, q * 16))
    SUBSTITUTE[p] = bxor(bxor(band(spread, 0xff), rshift(spread, 8)), bxor(q, 0x63))
  until p == 1
  SUBSTITUTE[0] = 0x63
  for byte = 0, 255 do
    local once = SUBSTITUTE[byte]
    local twice = double(once)
    local column = twice * 0x1000000 + once * 0x10000 + once * 0x100 + bxor(twice, once)
    for index = 1, 4 do MIX[index][byte] = rrotate(column, 8 * (index - 1)) end
  end
end

local function substitute_word(word)
  return SUBSTITUTE[rshift(word, 24)] * 0x1000000 + SUBSTITUTE[band(rshift(word, 16), 0xff)] * 0x10000
    + SUBSTITUTE[band(rshift(word, 8), 0xff)] * 0x100 + SUBSTITUTE[band(word, 0xff)]
end

-- The round keys of a key of 32 bytes: 15 times four words.
local function expand_key(key)
  local words, constant = { Struct.unpack(">I4I4I4I4I4I4I4I4", key) }, 1
  words[9] = nil -- Struct.unpack also returns where it stopped.
  for index = 9, 60 do
    local word = words[index - 1]
    if index % 8 == 1 then
      word = bxor(substitute_word(rrotate(word, 24)), constant * 0x1000000)
      constant = constant * 2
    elseif index % 8 == 5 then
      word = substitute_word(word)
    end
    words[index] = bxor(words[index - 8], word)
  end
  return words
end

-- The four bytes of a word, the highest first. Arithmetic takes half the time of a call to shift.
local function bytes_of(word)
  local d = word % 0x100
  word = (word - d) / 0x100
  local c = word % 0x100
  word = (word - c) / 0x100
  local b = word % 0x100
  return (word - b) / 0x100, b, c, d
end

local function encrypt_block(keys, a, b, c, d)
  local mix1, mix2, mix3, mix4, box = MIX[1], MIX[2], MIX[3], MIX[4], SUBSTITUTE
  a, b, c, d = bxor(a, keys[1]), bxor(b, keys[2]), bxor(c, keys[3]), bxor(d, keys[4])
  local a1, a2, a3, a4, b1, b2, b3, b4, c1, c2, c3, c4, d1, d2, d3, d4
  for at = 5, 57, 4 do
    a1, a2, a3, a4 = bytes_of(a)
    b1, b2, b3, b4 = bytes_of(b)
    c1, c2, c3, c4 = bytes_of(c)
    d1, d2, d3, d4 = bytes_of(d)
    if at < 57 then
      a = bxor(mix1[a1], mix2[b2], mix3[c3], mix4[d4], keys[at])
      b = bxor(mix1[b1], mix2[c2], mix3[d3], mix4[a4], keys[at + 1])
      c = bxor(mix1[c1], mix2[d2], mix3[a3], mix4[b4], keys[at + 2])
      d = bxor(mix1[d1], mix2[a2], mix3[b3], mix4[c4], keys[at + 3])
    end
  end
  -- The last round does not mix.
  return bxor(box[a1] * 0x1000000 + box[b2] * 0x10000 + box[c3] * 0x100 + box[d4], keys[57]),
    bxor(box[b1] * 0x1000000 + box[c2] * 0x10000 + box[d3] * 0x100 + box[a4], keys[58]),
    bxor(box[c1] * 0x1000000 + box[d2] * 0x10000 + box[a3] * 0x100 + box[b4], keys[59]),
    bxor(box[d1] * 0x1000000 + box[a2] * 0x10000 + box[b3] * 0x100 + box[c4], keys[60])
end

-- GHASH: bits count from the left, so times x is a shift to the right, and a bit that leaves comes back
-- as the polynomial.
local POLYNOMIAL = 0xe1000000
local REMAINDERS = {}

local function half(a, b, c, d)
  local carry = d % 2 == 1 and POLYNOMIAL or 0
  return bxor(rshift(a, 1), carry), rshift(b, 1) + a % 2 * 0x80000000, rshift(c, 1) + b % 2 * 0x80000000,
    rshift(d, 1) + c % 2 * 0x80000000
end

-- Both tables are linear: an entry is the sum of those of its bits. One is what eight shifts make of a
-- byte that leaves; the other is H times each byte, as four lists of words.
local function sums_over_bits(list)
  list[0] = 0
  for _, high in ipairs({ 2, 4, 8, 16, 32, 64, 128 }) do
    for low = 1, high - 1 do list[high + low] = bxor(list[high], list[low]) end
  end
  return list
end

do
  for place = 0, 7 do
    local a, b, c, d = 0, 0, 0, 2 ^ place
    for _ = 1, 8 do a, b, c, d = half(a, b, c, d) end
    REMAINDERS[2 ^ place] = a
  end
  sums_over_bits(REMAINDERS)
end

local function multiples(a, b, c, d)
  local lists = { {}, {}, {}, {} }
  for place = 7, 0, -1 do
    local bit_of = 2 ^ place
    lists[1][bit_of], lists[2][bit_of], lists[3][bit_of], lists[4][bit_of] = a, b, c, d
    a, b, c, d = half(a, b, c, d)
  end
  for _, list in ipairs(lists) do sums_over_bits(list) end
  return lists
end

local function multiply(of_h, x1, x2, x3, x4)
  local one, two, three, four, remainders = of_h[1], of_h[2], of_h[3], of_h[4], REMAINDERS
  local a, b, c, d = 0, 0, 0, 0
  for index = 4, 1, -1 do
    local word = index == 4 and x4 or index == 3 and x3 or index == 2 and x2 or x1
    for _ = 1, 4 do
      local byte, a_low, b_low, c_low, d_low = word % 0x100, a % 0x100, b % 0x100, c % 0x100, d % 0x100
      word = (word - byte) / 0x100
      d = bxor((d - d_low) / 0x100 + c_low * 0x1000000, four[byte])
      c = bxor((c - c_low) / 0x100 + b_low * 0x1000000, three[byte])
      b = bxor((b - b_low) / 0x100 + a_low * 0x1000000, two[byte])
      a = bxor((a - a_low) / 0x100, remainders[d_low], one[byte])
    end
  end
  return a, b, c, d
end

local BLOCK = ">I4I4I4I4"

local function padded(data) return data .. ("\0"):rep(-#data % 16) end

-- Return the plaintext, or nil if the tag is that of another key, or of other bytes.
local function decrypt(cipher, n1, n2, n3, clear, ciphertext, tag)
  local keys, of_h = cipher.keys, cipher.multiples
  local a, b, c, d = 0, 0, 0, 0
  local lengths = Struct.pack(BLOCK, 0, #clear * 8, 0, #ciphertext * 8)
  local covered = padded(clear) .. padded(ciphertext) .. lengths
  for at = 1, #covered, 16 do
    local w, x, y, z = Struct.unpack(BLOCK, covered, at)
    a, b, c, d = multiply(of_h, bxor(a, w), bxor(b, x), bxor(c, y), bxor(d, z))
  end
  local w, x, y, z = encrypt_block(keys, n1, n2, n3, 1)
  if Struct.pack(BLOCK, bxor(a, w), bxor(b, x), bxor(c, y), bxor(d, z)) ~= tag then return nil end
  local plain, source = {}, padded(ciphertext)
  for at = 1, #source, 16 do
    local p, q, r, s = Struct.unpack(BLOCK, source, at)
    w, x, y, z = encrypt_block(keys, n1, n2, n3, 1 + (at + 15) / 16)
    plain[#plain + 1] = Struct.pack(BLOCK, bxor(p, w), bxor(q, x), bxor(r, y), bxor(s, z))
  end
  return table.concat(plain):sub(1, #ciphertext)
end

local function cipher_of(key)
  local keys = expand_key(key)
  return { keys = keys, multiples = multiples(encrypt_block(keys, 0, 0, 0, 0)) }
end

-- SHA-256: its constants are the first 32 bits of the fractions of roots of primes.
local ROOTS, START = {}, {}

do
  local function fraction(root)
    return math.floor((root - math.floor(root)) * 2 ^ 32)
  end
  local candidate, primes = 2, {}
  while #primes < 64 do
    local is_prime = true
    for _, prime in ipairs(primes) do is_prime = is_prime and candidate % prime ~= 0 end
    if is_prime then primes[#primes + 1] = candidate end
    candidate = candidate + 1
  end
  for index, prime in ipairs(primes) do
    ROOTS[index] = fraction(prime ^ (1 / 3))
    if index <= 8 then START[index] = fraction(prime ^ 0.5) end
  end
end

local function sum(...)
  local total = 0
  for index = 1, select("#", ...) do total = total + select(index, ...) end
  return total % WRAP
end

local function sha256(message)
  local tail = "\128" .. ("\0"):rep((55 - #message) % 64) .. Struct.pack(">I4I4", 0, #message * 8)
  local data, state = message .. tail, { table.unpack(START) }
  for at = 1, #data, 64 do
    local w = { Struct.unpack(">" .. ("I4"):rep(16), data, at) }
    for index = 17, 64 do
      local early, late = w[index - 15], w[index - 2]
      local s0 = bxor(bxor(rrotate(early, 7), rrotate(early, 18)), rshift(early, 3))
      local s1 = bxor(bxor(rrotate(late, 17), rrotate(late, 19)), rshift(late, 10))
      w[index] = sum(w[index - 16], s0, w[index - 7], s1)
    end
    local a, b, c, d, e, f, g, h = table.unpack(state)
    for index = 1, 64 do
      local s1 = bxor(bxor(rrotate(e, 6), rrotate(e, 11)), rrotate(e, 25))
      local choice = bxor(band(e, f), band(bnot(e), g))
      local first = sum(h, s1, choice, ROOTS[index], w[index])
      local s0 = bxor(bxor(rrotate(a, 2), rrotate(a, 13)), rrotate(a, 22))
      local majority = bxor(bxor(band(a, b), band(a, c)), band(b, c))
      a, b, c, d, e, f, g, h = sum(first, s0, majority), a, b, c, sum(d, first), e, f, g
    end
    for index, word in ipairs({ a, b, c, d, e, f, g, h }) do state[index] = sum(state[index], word) end
  end
  return Struct.pack(">" .. ("I4"):rep(8), table.unpack(state))
end

local function hmac_sha256(key, message)
  local inner, outer = {}, {}
  for index = 1, 64 do
    local byte = key:byte(index) or 0
    inner[index], outer[index] = string.char(bxor(byte, 0x36)), string.char(bxor(byte, 0x5c))
  end
  return sha256(table.concat(outer) .. sha256(table.concat(inner) .. message))
end

-- Keys. The key log has lines `SPHTP_CHANNEL_KEY`, the connection id in the front of the datagrams, and
-- the key of its epoch 0, both in hexadecimal. The keys of a sealed stream travel in the channels of its
-- receivers, so they are read from these channels. A name may have several keys: two nodes may have the
-- same id, and a message of an application may look like one with keys. The tag shows the right key.
local KEY_LINE = "^SPHTP_CHANNEL_KEY (%x+) (%x+)%s*$"
-- To derive the keys of 1,024 epochs, which have a thousand million datagrams, takes a second or two.
local MOST_EPOCHS = 1024

-- By name: a list of keys, each with those of the epochs that follow it, and the ciphers in use.
local keyring, keyring_of = nil, nil
-- By connection id: the stream that a receiver joined there.
local sessions = {}
-- Packets are shown again and again, and opening is slow. What could not be opened is tried again only
-- with more keys.
local opened, missed = {}, {}

sphtp.prefs.key_log_file =
  Pref.string("Key log file", "", "Keys of sealed channels: the file that the environment variable SPHTPKEYLOGFILE names")

function sphtp.init() keyring, sessions, opened, missed = nil, {}, {}, {} end

local function name_of_channel(id) return ("channel %08x"):format(id) end
local function name_of_stream(session, key) return ("stream %08x key %d"):format(session, key) end
local function name_of_feedback(session, receiver) return ("feedback %08x of %08x"):format(session, receiver) end

local function learn(name, key, epoch)
  local list = keyring[name] or {}
  keyring[name] = list
  for _, known in ipairs(list) do
    if known.keys[epoch] == key then return end
  end
  table.insert(list, { keys = { [epoch] = key }, first = epoch, last = epoch, ciphers = {} })
end

local function from_hex(digits)
  return (digits:gsub("%x%x", function(pair) return string.char(tonumber(pair, 16)) end))
end

local function read_key_log(path)
  keyring, keyring_of, opened, missed = {}, path, {}, {}
  local file = path ~= "" and io.open(path, "r")
  if not file then return end
  for line in file:lines() do
    local id, key = line:match(KEY_LINE)
    if id and #id <= 8 and #key == 64 then learn(name_of_channel(tonumber(id, 16)), from_hex(key), 0) end
  end
  file:close()
end

-- A WELCOME or a KEY among the payloads of an opened channel: docs/reference/wire/streams.md, "Joining".
function learn_from(payload, id)
  if payload:byte(1) ~= 0xc4 or payload:byte(2) ~= #payload - 2 then return end
  local message = payload:sub(3)
  local kind, at = message:byte(1), 2
  local receiver
  if kind == 2 and #message > 42 then
    sessions[id], receiver = Struct.unpack("<I4I4", message, 2)
    local seal = 42 + message:byte(42) + 2 + 1
    if message:byte(seal) ~= 1 or #message ~= seal + 1 + 32 + 8 + 32 then return end
    at = seal + 1
    learn(name_of_feedback(sessions[id], receiver), message:sub(-32), 0)
  elseif kind ~= 4 or #message ~= 1 + 1 + 32 + 8 or not sessions[id] then
    return
  end
  local low, high = Struct.unpack("<I4I4", message, at + 33)
  local epoch = high * 2 ^ 12 + math.floor(low / 2 ^ 20)
  learn(name_of_stream(sessions[id], message:byte(at)), message:sub(at + 1, at + 32), epoch)
end

local function cipher_in(chain, epoch)
  if epoch < chain.first or epoch > chain.last + MOST_EPOCHS then return nil end
  for index = chain.last + 1, epoch do
    chain.keys[index] = hmac_sha256(chain.keys[index - 1], "SphTP next key\1")
    chain.last = index
  end
  chain.ciphers[epoch] = chain.ciphers[epoch] or cipher_of(chain.keys[epoch])
  return chain.ciphers[epoch]
end

-- Return the plaintext of a datagram whose bytes from `sealed` on are encrypted; nil without its key.
local function open_datagram(about, tvb, start, sealed, name, counter)
  if keyring_of ~= sphtp.prefs.key_log_file or not keyring then read_key_log(sphtp.prefs.key_log_file) end
  local list = keyring[name]
  if not list then return nil end
  local place = table.concat({ about.pinfo.number, name, tostring(counter) }, " ")
  if opened[place] or missed[place] == #list then return opened[place] end
  local epoch, size = counter:rshift(20):tonumber(), tvb:len() - sealed - TAG_SIZE
  if size <= 0 then return nil end
  local clear, ciphertext, tag = tvb:raw(start, sealed - start), tvb:raw(sealed, size), tvb:raw(sealed + size, TAG_SIZE)
  for _, chain in ipairs(list) do
    local cipher = cipher_in(chain, epoch)
    local plain = cipher and decrypt(cipher, 0, counter:higher(), counter:lower(), clear, ciphertext, tag)
    opened[place] = plain or nil
    if plain then return plain end
  end
  missed[place] = #list
  return nil
end

-- Return a tvb of the plaintext, or nil.
function open_sealed(about, tvb, start, sealed, counter)
  local name = about.kind == "SEALED" and name_of_channel(about.id)
    or about.kind == "STREAM" and name_of_stream(about.id, about.key)
    or name_of_feedback(about.id, about.receiver)
  local plain = open_datagram(about, tvb, start, sealed, name, counter)
  return plain and ByteArray.new(plain, true):tvb("Opened " .. about.kind)
end
end

-- Channels: datagrams -----------------------------------------------------------------------------

local TOKEN = hex("token", 8)
local OFFER = {
  hex("offer.connection_id", 4), number("offer.peer_id", 4), number("offer.first_sequence", 2),
  number("offer.receive_buffer", 2), number("offer.receive_buffer_bytes", 4),
  number("offer.max_datagram", 2), number("offer.max_message", 4), hex("offer.schema_hash", 8),
}
local OFFER_SIZE = 30
local RENDEZVOUS = { text("rendezvous.mark", 4), hex("rendezvous.name", 4), hex("rendezvous.nonce", 8) }
local RENDEZVOUS_SIZE, RENDEZVOUS_MARK = 16, 0x534d454d
local WANTED, DIGEST, SCHEMA_HASH = number("wanted", 4), hex("digest", 4), hex("schema_hash", 8)
local PAD, REFUSAL, LINE = bytes("padding"), number("reason", 1, REFUSALS), text("line")
local GREETING = { hex("opener", 4), TOKEN }
local PATTERN, COOKIE, NOISE = number("pattern", 1, PATTERNS), bytes("cookie", 16), bytes("noise")
local CONTENT = bytes("content")
local COUNTER, EPOCH = number("counter", 8), number("epoch", 8)
local CIPHERTEXT, TAG = bytes("ciphertext"), bytes("tag", 16)
local PROOF, NONCE = bytes("proof", 16), hex("nonce", 8)

local function read_offer(at, tree)
  local offer = at:read_all(at:branch(tree, "Offer", OFFER_SIZE), OFFER)
  require_that(offer.connection_id ~= 0, "the connection id in the offer is 0")
  require_that(offer.receive_buffer > 0, "the offer has no receive buffer")
  require_that(offer.max_message > 0, "the offer takes no message")
  require_that(offer.max_datagram >= 256, "the offer takes datagrams of %d bytes only", offer.max_datagram)
  return offer
end

local function read_rendezvous(at, tree)
  at:read_all(at:branch(tree, "Rendezvous", RENDEZVOUS_SIZE), RENDEZVOUS)
end

-- By kind: the smallest size of its datagrams, and the largest if there is one.
local SIZES = {
  DATA = { 13 }, CONNECT = { 64 }, ACCEPT = { 43, 59 }, REFUSE = { 14 }, GREET = { 192 }, COOKIE = { 29, 29 },
  WELCOME = { 13 }, CONFIRM = { 17 }, SEALED = { 29 }, RESET = { 21, 21 }, CHALLENGE = { 13, 13 },
  RESPONSE = { 13, 13 }, STREAM = { 20 }, FEEDBACK = { 19 },
}

local read_datagram, read_stream, read_feedback, read_sealed

local READ_DATAGRAM = {
  DATA = read_packet,
  CONNECT = function(at, tree, about)
    at:read(tree, TOKEN)
    at:read(tree, WANTED)
    about.offer = read_offer(at, tree)
    for _ = 1, at:length(1, "count of digests") do at:read(tree, DIGEST) end
    local has_rendezvous = at:left() >= RENDEZVOUS_SIZE and at.tvb(at.at, 4):uint() == RENDEZVOUS_MARK
    if has_rendezvous then read_rendezvous(at, tree) end
    if at:left() > 0 then at:read(tree, PAD) end
  end,
  ACCEPT = function(at, tree)
    at:read(tree, TOKEN)
    read_offer(at, tree)
    require_that(at:left() == 0 or at:left() == RENDEZVOUS_SIZE, "%d bytes follow the offer", at:left())
    if at:left() > 0 then read_rendezvous(at, tree) end
  end,
  REFUSE = function(at, tree, about)
    at:read(tree, TOKEN)
    local reason = at:read(tree, REFUSAL)
    about.refusal = reason
    note(about, "%s", REFUSALS[reason] or reason)
    if REFUSALS[reason] == "SCHEMA" then
      at:read(tree, SCHEMA_HASH)
      at:read(tree, DIGEST)
      at:read(tree, LINE)
    end
  end,
  GREET = function(at, tree, about)
    require_that(at:read_all(tree, GREETING).opener ~= 0, "the connection id of the opener is 0")
    about.pattern = at:read(tree, PATTERN)
    note(about, "%s", PATTERNS[about.pattern] or about.pattern)
    at:read(tree, COOKIE)
    at:read(tree, NOISE)
  end,
  COOKIE = function(at, tree)
    at:read(tree, TOKEN)
    at:read(tree, COOKIE)
  end,
  WELCOME = function(at, tree, about)
    at:read(tree, TOKEN)
    if not about.is_opened then return at:read(tree, CONTENT) end
    -- Inside a seal it is the introduction itself: a proof, and a datagram.
    at:read(tree, PROOF)
    local start = at:take(at:left(), "introduction")
    read_datagram(at.tvb, start, tree:add(at.tvb(start), "Introduction"), notes(about.pinfo))
  end,
  CONFIRM = function(at, tree)
    at:read_all(tree, GREETING)
    at:read(tree, NOISE)
  end,
  SEALED = function(at, tree, about) read_sealed(at, tree, about) end,
  RESET = function(at, tree) at:read(tree, PROOF) end,
  CHALLENGE = function(at, tree) at:read(tree, NONCE) end,
  RESPONSE = function(at, tree) at:read(tree, NONCE) end,
  STREAM = function(at, tree, about) read_stream(at, tree, about) end,
  FEEDBACK = function(at, tree, about) read_feedback(at, tree, about) end,
}

local VERSION_FIELD = declare("version", ftypes.UINT8, 1, base.DEC, nil, 0xf0)
local KIND_FIELD = declare("kind", ftypes.UINT8, 1, base.DEC, KINDS, 0x0f)
local CONNECTION_ID, SESSION = hex("connection_id", 4), hex("session", 4)

function read_datagram(tvb, start, tree, about)
  local at = cursor(tvb, start, tvb:len())
  at.start = start
  local front = tvb(at:take(1, "front"), 1)
  local version, kind = math.floor(front:uint() / 16), front:uint() % 16
  local name, size = KINDS[kind], at.stop - start
  tree:add(VERSION_FIELD.field, front)
  tree:add(KIND_FIELD.field, front)
  require_that(version == 1, "this is version %d, or no SphTP", version)
  require_that(name, "there is no datagram of kind %d", kind)
  about.kind, about.size = name, size
  note(about, "%s", name)
  local least, most = SIZES[name][1], SIZES[name][2]
  require_that(size >= least, "a %s of %d bytes has less than %d", name, size, least)
  require_that(size <= (most or size), "a %s of %d bytes has more than %s", name, size, most)
  local is_stream = name == "STREAM" or name == "FEEDBACK"
  about.id = at:read(tree, is_stream and SESSION or CONNECTION_ID)
  READ_DATAGRAM[name](at, tree, about)
  require_that(at:left() == 0, "%d bytes follow the end of a %s", at:left(), name)
end

-- Read a counter, a ciphertext and a tag. Return a tvb of the plaintext if there is a key for it.
local function read_ciphertext(at, tree, about)
  local counter = at:read(tree, COUNTER)
  about.counter = counter
  note(about, "counter=%s", tostring(counter))
  tree:add(EPOCH.field, at.tvb(at.at - 8, 8), counter:rshift(20)):set_generated()
  require_that(at:left() >= TAG_SIZE, "there is no tag")
  local sealed = at.at
  if at:left() > TAG_SIZE then at:part(at:left() - TAG_SIZE, "ciphertext"):read(tree, CIPHERTEXT) end
  at:read(tree, TAG)
  return tree ~= NO_TREE and open_sealed(about, at.tvb, at.start, sealed, counter)
end

local INSIDE = { DATA = true, WELCOME = true, REFUSE = true, CHALLENGE = true, RESPONSE = true }

function read_sealed(at, tree, about)
  local tvb = read_ciphertext(at, tree, about)
  if not tvb then return end
  local inside = notes(about.pinfo)
  inside.is_opened = true
  read_datagram(tvb, 0, tree:add(tvb(), "Opened datagram"), inside)
  note(about, "%s", table.concat(inside.words, " "))
  require_that(INSIDE[inside.kind], "a %s is inside a seal", inside.kind)
  require_that(inside.id == about.id, "the connection ids inside and outside the seal differ")
end

-- Streams -----------------------------------------------------------------------------------------

local RECEIVER, KEY_NUMBER = hex("receiver", 4), number("key", 1)
local BODY_TYPE, FLAGS = number("type", 1, BODIES), hex("flags", 1)
local WINDOW = { number("lead", 4), number("trail", 4) }
local MOST_BEHIND = 2 ^ 30
local SQN, SESSION_NUMBER = number("sqn", 4), number("number", 4)
local TAILS, TAIL = number("tails", 2), { number("tail.topic", 2), number("tail.next", 8) }
local CONFIRMATION, RETRY_AFTER = number("ncf.reason", 1, CONFIRMATIONS), number("retry_after", 2)
local RANGES, RANGE = number("ranges", 2), { number("range.first", 4), number("range.further", 2) }
local STATUS = { number("lead", 4), number("room", 4) }
local RECORD_KIND = number("record.kind", 1, RECORDS)
local RECORD = { number("record.topic", 2), number("record.first", 8) }
local RECORD_COUNT, RECORD_LENGTH = number("record.count", 2), number("record.length", 2)
local RECORD_PART = { number("record.part", 4), number("record.parts", 4) }
local RECORD_PAYLOAD = bytes("record.payload")
local FLAG_BITS = {
  DATA = { bit("flags.repair", 0x01) },
  SESSION = { bit("flags.closing", 0x02), bit("flags.closed", 0x04) },
  STATUS = { bit("flags.closing", 0x02), bit("flags.fetching", 0x08) },
}
local MOST_TOPICS, MOST_RANGES, MOST_FRAGMENTS = 64, 128, 1048576

-- Ranges are in order: each begins above the end of the one before it.
local function read_ranges(at, tree, lead)
  local count = at:read(tree, RANGES)
  require_that(count > 0 and count <= MOST_RANGES, "there are %d ranges", count)
  local last
  for _ = 1, count do
    local range = at:read_all(at:branch(tree, "Range", 6), RANGE)
    local step = last and behind(range.first, last)
    require_that(not step or (step > 0 and step < WRAP / 2), "the ranges are out of order")
    last = (range.first + range.further) % WRAP
    require_that(not lead or behind(lead, last) < WRAP / 2, "a range is above the lead")
  end
end

local function read_record(at, tree, records)
  local kind = at:peek()
  local name, start = RECORDS[kind], at.at
  local branch = at:branch(tree, name or "Record")
  at:read(branch, RECORD_KIND)
  require_that(name, "there is no record of kind %d", kind)
  at:read_all(branch, RECORD)
  if name == "FRAGMENT" then
    local part = at:read_all(branch, RECORD_PART)
    local is_inside = part.part < part.parts and part.parts <= MOST_FRAGMENTS
    require_that(is_inside, "part %d of %d is out of bounds", part.part, part.parts)
    local length = at:read(branch, RECORD_LENGTH)
    require_that(length > 0, "a fragment has no bytes")
    at:part(length, "payload"):read(branch, RECORD_PAYLOAD)
  else
    local count = at:read(branch, RECORD_COUNT)
    require_that(count > 0, "there is no message in a record of messages")
    records.messages = records.messages + count
    require_that(records.messages <= records.size, "the records have more messages than bytes")
    local lengths = name == "RUN" and repeated(at:read(branch, RECORD_LENGTH), count)
    read_payloads(at, branch, RECORD_PAYLOAD, lengths or read_lengths(at, count))
  end
  branch:set_len(at.at - start)
end

local READ_BODY = {
  DATA = function(at, tree, about, window)
    local records = { messages = 0 }
    local sqn = at:read(tree, SQN)
    records.size = at:left()
    note(about, "sqn=%d", sqn)
    local is_inside = behind(window.lead, sqn) < behind(window.lead + 1, window.trail)
    require_that(is_inside, "the number %d is not in the window", sqn)
    while at:left() > 0 do read_record(at, tree, records) end
  end,
  SESSION = function(at, tree)
    at:read(tree, SESSION_NUMBER)
    local count = at:read(tree, TAILS)
    require_that(count <= MOST_TOPICS, "there are %d topics", count)
    for _ = 1, count do at:read_all(at:branch(tree, "Tail", 10), TAIL) end
  end,
  NCF = function(at, tree, about, window)
    local reason = at:read(tree, CONFIRMATION)
    require_that(CONFIRMATIONS[reason], "there is no reason %d", reason)
    note(about, "%s", CONFIRMATIONS[reason])
    at:read(tree, RETRY_AFTER)
    read_ranges(at, tree, window.lead)
  end,
  NAK = function(at, tree) read_ranges(at, tree) end,
  STATUS = function(at, tree, about)
    local status = at:read_all(tree, STATUS)
    note(about, "lead=%d room=%d", status.lead, status.room)
  end,
}

local function read_body(at, tree, about, allowed)
  local kind = at:peek()
  local name = BODIES[kind]
  at:read(tree, BODY_TYPE)
  require_that(name and allowed[name], "there is no body of type %d here", kind)
  note(about, "%s", name)
  local _, flags = at:read(tree, FLAGS)
  for _, row in ipairs(FLAG_BITS[name] or {}) do flags:add(row.field, at.tvb(at.at - 1, 1)) end
  local window
  if allowed.DATA then
    window = at:read_all(tree, WINDOW)
    local size = behind(window.lead + 1, window.trail)
    require_that(size <= MOST_BEHIND + 1, "the window ends at %d and begins at %d", window.lead, window.trail)
  end
  READ_BODY[name](at, tree, about, window)
  require_that(at:left() == 0, "%d bytes follow the end of a %s", at:left(), name)
end

-- No bit distinguishes a stream in the clear from a sealed one. So bytes that keep every rule of a body
-- are read as a body. Other bytes are read as sealed, unless the first is a type of a body and the first
-- eight are no counter below 2^32. A body in the clear begins with a type, and numbers of datagrams that
-- are not 0 follow: read as a counter, these bytes give more than 2^32.
local function can_be_ciphertext(at, allowed)
  if at:left() <= 8 + TAG_SIZE then return false end
  return not allowed[BODIES[at:peek()] or ""] or at.tvb(at.at + 4, 4):uint() == 0
end

local function read_body_or_ciphertext(at, tree, about, allowed)
  if can_be_ciphertext(at, allowed) then
    local body = cursor(at.tvb, at.at, at.stop)
    local is_body, problem = pcall(read_body, body, NO_TREE, notes(about.pinfo), allowed)
    if not is_body then
      if getmetatable(problem) ~= Malformed then error(problem, 0) end
      local tvb = read_ciphertext(at, tree, about)
      if not tvb then return end
      return read_body(cursor(tvb, 0, tvb:len()), tree:add(tvb(), "Opened body"), about, allowed)
    end
  end
  require_that(at:left() > 0, "there is no body")
  read_body(at, tree, about, allowed)
end

function read_stream(at, tree, about)
  about.key = at:read(tree, KEY_NUMBER)
  read_body_or_ciphertext(at, tree, about, { DATA = true, SESSION = true, NCF = true })
end

function read_feedback(at, tree, about)
  about.receiver = at:read(tree, RECEIVER)
  read_body_or_ciphertext(at, tree, about, { NAK = true, STATUS = true })
end

-- Control plane: parameters -----------------------------------------------------------------------

local PARAMETERS

do
local CLIENT, SERVER = hex("parameter.client", 4), hex("parameter.server", 4)
local HOLDER_NONCE, REVISION = hex("parameter.nonce", 8), number("parameter.revision", 4)
local PORT, DATA = number("parameter.port", 2), bytes("parameter.data")
local HOST = declare("parameter.host", ftypes.STRING, nil, base.NONE)
local STATE = number("parameter.state", 1, STATES)
local PUB, SUB = text("parameter.pub"), text("parameter.sub")
local KEY = bytes("parameter.key", 32)
local TOPIC_NAMES, GROUP_NAMES, NAME = text("parameter.topics"), text("parameter.groups"), text("parameter.name")
local CANDIDATES = number("parameter.candidates", 1)
local MOST_CANDIDATES, MOST_DATA, MOST_URL = 8, 4096, 256
local MOST_NAMES, MOST_NAME_BYTES, MOST_NAME_CHARACTERS = 64, 2048, 64
local HIGHEST = UInt64.new(0, 0x80000000)

local function require_client(id) require_that(id > 1 and id % 2 == 1, "%d is no id of a client", id) end
local function require_server(id) require_that(id > 1 and id % 2 == 0, "%d is no id of a server", id) end

-- The number of characters of UTF-8 (RFC 3629) without control characters; nil for other bytes.
local function count_characters(raw)
  local at, characters = 1, 0
  while at <= #raw do
    local first, second = raw:byte(at, at + 1)
    local size = first < 0x80 and 1 or first >= 0xf0 and 4 or first >= 0xe0 and 3 or 2
    if first < 0x20 or first == 0x7f or (first == 0xc2 and second and second < 0xa0) then return nil end
    if size > 1 then
      local low = first == 0xe0 and 0xa0 or first == 0xf0 and 0x90 or 0x80
      local high = first == 0xed and 0x9f or first == 0xf4 and 0x8f or 0xbf
      if first < 0xc2 or first > 0xf4 or not second or second < low or second > high then return nil end
      if not raw:match("^" .. ("[\128-\191]"):rep(size - 1), at + 1) then return nil end
    end
    at, characters = at + size, characters + 1
  end
  return characters
end

local function read_candidate(at, tree)
  require_that(at:read(tree, PORT) ~= 0, "the port of a candidate is 0")
  local size = at:left()
  require_that(size == 4 or size == 16, "a candidate has an address of %d bytes", size)
  local range = at.tvb(at:take(size, "host"), size)
  tree:add(HOST.field, range, tostring(size == 4 and range:ipv4() or range:ipv6()))
end

-- An IPv6 address (RFC 4291, section 2.2): eight groups of digits, or fewer around one `::`.
local function is_ipv6(address)
  local groups = 0
  local before, after = address:match("^(.-)::(.*)$")
  for _, half in ipairs({ before or address, after }) do
    for group in (half ~= "" and half .. ":" or ""):gmatch("(.-):") do
      local is_last = half:sub(-#group) == group and half ~= before
      if group:find("^%d+%.%d+%.%d+%.%d+$") and is_last then groups = groups + 1
      elseif not group:find("^%x%x?%x?%x?$") then return false end
      groups = groups + 1
    end
  end
  return groups == 8 or (before ~= nil and groups < 8)
end

local function is_host(host)
  local address = host:match("^%[(.*)%]$")
  if address then return is_ipv6(address) end
  return host:find("^[%w._-]+$")
end

-- Check a URL. Of a scheme other than tcp and tls+tcp, which later versions may add, only the form counts.
local function require_url(url)
  -- A URL of a scheme to come may have control characters; count the rest.
  local others = url:gsub("%c", ""):gsub("\194[\128-\159]", "")
  require_that(count_characters(others) and #url <= MOST_URL, "a URL is no text, or too long")
  local scheme, rest = url:match("^(%l[%l%d+.-]*)://(.+)$")
  require_that(scheme, "%q is no URL", url)
  if scheme ~= "tcp" and scheme ~= "tls+tcp" then return end
  local host, port = rest:match("^(.+):(%d+)$")
  require_that(host and #port <= 5 and tonumber(port) > 0 and tonumber(port) < 65536, "%q has no port", url)
  require_that(is_host(host), "%q has no host", url)
end

local function read_url(at, tree, row)
  local size = at:length(2, row.name)
  local part = at:part(size, row.name)
  require_that(size > 0, "a URL is empty")
  local raw = at.tvb:raw(part.at, size)
  part:read(tree, row)
  require_url(raw)
end

local function read_names(at, tree, row)
  require_that(at:left() <= MOST_NAME_BYTES, "the names have %d bytes", at:left())
  local seen, count = {}, 0
  while at:left() > 0 do
    local size = at:length(1, row.name)
    local part = at:part(size, row.name)
    require_that(size > 0, "a name is empty")
    local raw = at.tvb:raw(part.at, size)
    part:read(tree, row)
    require_that(count_characters(raw), "a name is no text, or has control characters")
    require_that(not seen[raw], "a name is there twice")
    seen[raw], count = true, count + 1
  end
  require_that(count <= MOST_NAMES, "there are %d names", count)
end

local function read_name(at, tree)
  if at:left() == 0 then return at:read(tree, NAME) end
  local raw = at.tvb:raw(at.at, at:left())
  at:read(tree, NAME)
  local characters = count_characters(raw)
  require_that(characters and characters <= MOST_NAME_CHARACTERS, "a name is no text, or too long")
end

local function read_holder(at, tree)
  require_client(at:read(tree, CLIENT))
  at:read(tree, HOLDER_NONCE)
end

-- Return the reader of a parameter that has only these rows. Bytes behind them make any parameter malformed.
local function rows(...)
  local list = { ... }
  return function(at, tree) return at:read_all(tree, list) end
end

local function read_bounded_data(at, tree)
  require_that(at:left() <= MOST_DATA, "the data has %d bytes", at:left())
  at:read(tree, DATA)
end

local PART = { number("parameter.index", 2), number("parameter.count", 2) }
local GONE_REASON = number("parameter.reason", 2, REASONS)
local WATCH = { hex("parameter.topic", 4), number("parameter.count", 4), hex("parameter.mix", 8) }
local TERM = {
  hex("parameter.timeline", 8), number("parameter.generation", 4), hex("parameter.reference", 8),
  hex("parameter.predecessor", 8), number("parameter.since", 8), number("parameter.time", 8),
  number("parameter.error", 8),
}
local VIEW, ORIGIN = number("parameter.view", 8), number("parameter.origin", 8)
local TOKEN = number("parameter.token", 8)
local BOOT, NUMBER_OF_MESSAGE = hex("parameter.boot", 8), number("parameter.count", 8)

-- By id: the name, the reader of the data, and how many such parameters one message may have.
PARAMETERS = {
  [0x01] = { "VERSION", rows(number("parameter.version", 2)) },
  [0x02] = { "FEATURES", rows(hex("parameter.features", 4)) },
  [0x03] = { "NONCE", rows(HOLDER_NONCE) },
  [0x04] = { "CANDIDATE", read_candidate, MOST_CANDIDATES },
  [0x05] = { "STATE", rows(STATE) },
  [0x06] = { "VIEW", function(at, tree)
    require_that(at:read(tree, VIEW) <= HIGHEST, "the view is above 2^63")
  end },
  [0x07] = { "MEMBER", function(at, tree)
    require_server(at:read(tree, SERVER))
    at:read(tree, HOLDER_NONCE)
    at:read(tree, STATE)
    if at:left() == 0 then return end
    read_url(at, tree, PUB)
    read_url(at, tree, SUB)
  end, 64 },
  [0x08] = { "ROSTER", rows(number("parameter.count", 4), hex("parameter.mix", 8)) },
  [0x09] = { "REASON", rows(GONE_REASON) },
  [0x0a] = { "REVISION", rows(REVISION) },
  [0x0b] = { "BLOB", read_bounded_data },
  [0x0c] = { "PEER", function(at, tree)
    read_holder(at, tree)
    at:read(tree, REVISION)
    local count = at:read(tree, CANDIDATES)
    require_that(count <= MOST_CANDIDATES, "a peer has %d candidates", count)
    for _ = 1, count do
      local size = at:length(1, "candidate")
      local branch = at:branch(tree, "Candidate", size)
      read_candidate(at:part(size, "candidate"), branch)
    end
    read_bounded_data(at, tree)
  end },
  [0x0d] = { "ACKED", read_holder },
  [0x0e] = { "PART", function(at, tree)
    local part = at:read_all(tree, PART)
    local index, count = part.index, part.count:tonumber()
    require_that(index < count and count <= 1024, "part %d of %d is out of bounds", index, count)
  end },
  [0x0f] = { "TEXT", rows(DATA) },
  [0x10] = { "PEER_ID", function(at, tree) require_client(at:read(tree, CLIENT)) end },
  [0x11] = { "GONE", function(at, tree)
    read_holder(at, tree)
    at:read(tree, GONE_REASON)
  end },
  [0x12] = { "TARGET", function(at, tree) require_server(at:read(tree, SERVER)) end },
  [0x13] = { "KEY", rows(KEY) },
  [0x14] = { "PEER_KEY", function(at, tree)
    read_holder(at, tree)
    at:read(tree, KEY)
  end },
  [0x15] = { "VOUCHER", rows(BOOT, NUMBER_OF_MESSAGE, bytes("parameter.code", 16)) },
  [0x16] = { "TOPICS", function(at, tree) read_names(at, tree, TOPIC_NAMES) end },
  [0x17] = { "PEER_TOPICS", function(at, tree)
    read_holder(at, tree)
    read_names(at, tree, TOPIC_NAMES)
  end },
  [0x18] = { "SIGNATURE", rows(
    KEY, bytes("parameter.cluster", 32), bytes("parameter.certificate", 64), BOOT, NUMBER_OF_MESSAGE,
    bytes("parameter.signature", 64)
  ) },
  [0x19] = { "NAME", read_name },
  [0x1a] = { "PEER_NAME", function(at, tree)
    read_holder(at, tree)
    read_name(at, tree)
  end },
  [0x1b] = { "GROUPS", function(at, tree) read_names(at, tree, GROUP_NAMES) end },
  [0x1c] = { "PEER_GROUPS", function(at, tree)
    read_holder(at, tree)
    read_names(at, tree, GROUP_NAMES)
  end },
  [0x1d] = { "WATCH", function(at, tree)
    require_that(at:read_all(tree, WATCH).topic ~= 0, "nobody watches everybody")
  end, 321 },
  [0x1e] = { "TIME", function(at, tree)
    local term = at:read_all(tree, TERM)
    for _, name in ipairs({ "since", "time", "error" }) do
      require_that(term[name] <= HIGHEST, "%s is above 2^63", name)
    end
  end },
  [0x1f] = { "TIME_REQUEST", function(at, tree)
    require_server(at:read(tree, SERVER))
    at:read(tree, ORIGIN)
  end },
  [0x20] = { "ORIGIN", rows(ORIGIN) },
  [0x21] = { "TOKEN", rows(TOKEN) },
}
end

-- Control plane: messages -------------------------------------------------------------------------

local FIRST_OF_USERS = 0x0100
local PEER_LIST = "PEER PEER_KEY PEER_TOPICS PEER_NAME PEER_GROUPS"

-- By number: the name, and the parameters that a client and a server may send with it; `!` marks a
-- mandatory one. A side without a list never sends the command.
local COMMANDS = {
  [0x01] = {
    "HEARTBEAT", client = "NONCE REVISION TIME_REQUEST",
    server = "VERSION FEATURES NONCE STATE VIEW MEMBER ROSTER TIME TIME_REQUEST",
  },
  [0x02] = { "ANNOUNCE", client = "NONCE VERSION FEATURES CANDIDATE KEY NAME" },
  [0x03] = { "ACK", server = "NONCE ACKED" },
  [0x04] = { "NACK", server = "NONCE REASON" },
  [0x05] = { "LEAVE", client = "NONCE", server = "NONCE" },
  [0x06] = { "DATA", client = "NONCE REVISION! BLOB! TOPICS GROUPS" },
  [0x10] = { "LOOKUP", client = "NONCE PEER_ID TARGET WATCH" },
  [0x11] = { "PEERS", server = "PART " .. PEER_LIST },
  [0x12] = { "PEER_LEFT", server = "GONE" },
  [0x13] = { "CHECK", client = "NONCE PEER_ID! TOKEN!", server = "PEER_ID! TOKEN! CANDIDATE" },
  [0x18] = { "STATUS_REQUEST", client = "NONCE" },
  [0x19] = { "STATUS", server = "PART! TEXT!" },
  [0x1a] = { "TIME", server = "ORIGIN! TIME!" },
  [0x20] = { "REGISTERED", server = PEER_LIST },
  [0x21] = { "RELEASED", server = "GONE" },
  [0x22] = { "SNAPSHOT_REQUEST", server = "" },
  [0x23] = { "SNAPSHOT", server = "PART! " .. PEER_LIST },
}
local COMMAND_NAMES, PARAMETER_NAMES = {}, {}
for command, of in pairs(COMMANDS) do COMMAND_NAMES[command] = of[1] end
for id, parameter in pairs(PARAMETERS) do PARAMETER_NAMES[id] = parameter[1] end

-- A message with any command may have these parameters. One of another size is skipped.
local PROOF_SIZES = { VOUCHER = 32, SIGNATURE = 208 }

local SIMULATION, SENDER = hex("simulation", 4), hex("sender", 4)
local COMMAND = number("command", 2, COMMAND_NAMES, base.HEX)
local PARAMETER = declare("parameter.id", ftypes.UINT32, 2, base.HEX, PARAMETER_NAMES)
local DATA_LENGTH, SKIPPED = number("parameter.length", 2), bytes("parameter.data")
local MOST_BYTES = 65536

local function takes(list, name) return (" " .. list:gsub("!", "") .. " "):find(" " .. name .. " ", 1, true) end

-- Read a parameter. One that does not belong to the command is skipped, whatever its content.
local function read_parameter(at, tree, list, counts)
  local start, id = at.at, at:left() >= 2 and at.tvb(at.at, 2):le_uint()
  local of = PARAMETERS[id]
  local branch = at:branch(tree, of and of[1] or id and ("Parameter 0x%04x"):format(id) or "Parameter")
  at:read(branch, PARAMETER)
  local data = at:part(at:read(branch, DATA_LENGTH), "the data of a parameter")
  branch:set_len(at.at - start)
  local is_proof = of and PROOF_SIZES[of[1]] == data:left()
  if not of or not (is_proof or takes(list, of[1])) then
    branch:append_text(of and " (skipped)" or "")
    data:read(branch, SKIPPED)
    return
  end
  local name, read, most = of[1], of[2], of[3]
  counts[name] = (counts[name] or 0) + 1
  read(data, branch)
  require_that(data:left() == 0, "%d bytes follow the end of a %s", data:left(), name)
  require_that(counts[name] <= (most or counts[name]), "there are more than %d of %s", most or 0, name)
end

local function read_message(at, tree, about)
  require_that(at:left() <= MOST_BYTES, "a message has %d bytes", at:left())
  local simulation, sender = at:read(tree, SIMULATION), at:read(tree, SENDER)
  local command = at:read(tree, COMMAND)
  local of = COMMANDS[command]
  note(about, "%s", of and of[1] or ("0x%04x"):format(command))
  require_that(sender > 1, "%d is no id", sender)
  local is_client = sender % 2 == 1
  note(about, "%s %08x", is_client and "client" or "server", sender)
  require_that(not is_client or simulation == sender, "a client writes of another one")
  require_that(of or command >= FIRST_OF_USERS, "there is no command 0x%02x", command)
  local list = is_client and "NONCE" or ""
  if of then list = of[is_client and "client" or "server"] end
  require_that(list, "a %s sends no %s", is_client and "client" or "server", of and of[1])
  local counts = {}
  while at:left() > 0 do read_parameter(at, tree, list, counts) end
  for name in list:gmatch("([%u_]+)!") do require_that(counts[name], "there is no %s", name) end
end

-- Dissectors --------------------------------------------------------------------------------------

-- Run a reader. If it ends with a Malformed, add the reason to the tree and to the notes.
local function guard(tree, about, read, ...)
  local is_read, problem = pcall(read, ...)
  if is_read then return true end
  if getmetatable(problem) ~= Malformed then error(problem, 0) end
  tree:add_proto_expert_info(expert, "Malformed: " .. problem.reason)
  note(about, "[malformed: %s]", problem.reason)
  return false
end

-- Return the size of the datagrams in a row. Linux passes several datagrams of one size, of which the last
-- may be shorter, to the network in one piece (UDP_SEGMENT), and captures on the sending machine show the
-- piece. The datagrams have the same front and consecutive numbers, so that at least 7 bytes at the
-- beginning of the second one are known.
local function size_in_row(tvb)
  local kind, size = tvb(0, 1):uint(), tvb:len()
  local next_head
  if size < 26 then return size end
  if kind == 0x10 then
    next_head = tvb:raw(0, 5) .. Struct.pack("<I2", (tvb(5, 2):le_uint() + 1) % 0x10000)
  elseif kind == 0x18 or kind == 0x1c then
    local front = kind == 0x18 and 5 or 6
    local low, high = tvb(front, 4):le_uint(), tvb(front + 4, 4):le_uint()
    local carry = low == WRAP - 1 and 1 or 0
    next_head = tvb:raw(0, front) .. Struct.pack("<I4I4", (low + 1) % WRAP, (high + carry) % WRAP)
  else
    return size
  end
  local row = tvb:raw(0, size)
  local found = row:find(next_head, 14, true)
  for at = found or size + 1, size, found and found - 1 or 1 do
    if row:sub(at, at + 4) ~= row:sub(1, 5) then return size end
  end
  return found and found - 1 or size
end

local function dissect_datagram(tvb, pinfo, root)
  if tvb:len() == 0 then return 0 end
  local size, words = size_in_row(tvb), {}
  pinfo.cols.protocol = "SphTP"
  for at = 0, tvb:len() - 1, size do
    local one = size < tvb:len() and tvb(at, math.min(size, tvb:len() - at)):tvb() or tvb
    local tree, about = root:add(sphtp, one()), notes(pinfo)
    guard(tree, about, read_datagram, one, 0, tree, about)
    table.insert(words, table.concat(about.words, " "))
  end
  pinfo.cols.info = table.concat(words, " | ")
  return tvb:len()
end

-- The transport below the control plane. A connection begins with eight bytes that cannot be a
-- length, so no state is needed to tell them from one.
local SP_PROTOCOLS = { [32] = "PUB", [33] = "SUB" }
local SP_PROTOCOL = declare("sp.protocol", ftypes.UINT16, 2, base.DEC, SP_PROTOCOLS)
local SP_LENGTH = declare("sp.length", ftypes.UINT64, 8, base.DEC)
local SP_HEAD, SP_MARK, SP_MOST = 8, 0x00535000, 131072

local function is_hello(tvb, at) return tvb(at, 3):uint() == math.floor(SP_MARK / 256) end

local function size_of_frame(tvb, _, offset)
  if is_hello(tvb, offset) then return SP_HEAD end
  local high, low = tvb(offset, 4):uint(), tvb(offset + 4, 4):uint()
  -- A connection with a longer message is closed: nothing that follows can be read.
  if high > 0 or low > SP_MOST then return tvb:len() - offset end
  return SP_HEAD + low
end

local function read_frame(at, tree, about)
  if is_hello(at.tvb, at.at) then
    local start = at:take(SP_HEAD, "hello")
    local protocol = at.tvb(start + 4, 2)
    tree:add(SP_PROTOCOL.field, protocol)
    note(about, "hello %s", SP_PROTOCOLS[protocol:uint()] or protocol:uint())
    require_that(at.tvb(start, 4):uint() == SP_MARK, "the fourth byte is not 0")
    require_that(SP_PROTOCOLS[protocol:uint()], "protocol %d is neither PUB nor SUB", protocol:uint())
    require_that(at.tvb(start + 6, 2):uint() == 0, "the last two bytes are not 0")
    return
  end
  local range = at.tvb(at:take(SP_HEAD, "length"), SP_HEAD)
  local length = range:uint64()
  tree:add(SP_LENGTH.field, range)
  require_that(length <= UInt64.new(SP_MOST), "a message of %s bytes closes the connection", tostring(length))
  read_message(at, tree, about)
end

local function dissect_frame(tvb, pinfo, root)
  local tree, about = root:add(sphtp, tvb()), notes(pinfo)
  guard(tree, about, read_frame, cursor(tvb, 0, tvb:len()), tree, about)
  pinfo.cols.protocol = "SphTP"
  pinfo.cols.info:append((tostring(pinfo.cols.info) == "" and "" or ", ") .. table.concat(about.words, " "))
  return tvb:len()
end

local function dissect_connection(tvb, pinfo, root)
  pinfo.cols.info = ""
  dissect_tcp_pdus(tvb, root, SP_HEAD, size_of_frame, dissect_frame)
  return tvb:len()
end

local TCP_PORT = 2

function sphtp.dissector(tvb, pinfo, root)
  return (pinfo.port_type == TCP_PORT and dissect_connection or dissect_datagram)(tvb, pinfo, root)
end

-- Whether the rules that a well-formed datagram keeps bind so many bits that chance is ruled out. Its
-- first byte is 8 of them in every kind.
--   CONNECT, GREET, CONFIRM   32 of a connection id that is 0; patterns and sizes are more
--   ACCEPT                    32 or so: one of two sizes, and the bounds of an offer
--   other kinds               no more than a size, at most: never
--   DATA                      16 and more of lengths that add up to the end of the datagram, 8 of the
--                             kind of each frame, 1 of the lane; only with whole messages or parts
--   SEALED                    24 of a counter below 2^40
--   STREAM, FEEDBACK          the same, or 40 and more of the body: type, window, and lengths
local RULES = {
  CONNECT = function(tvb, about) return about.id == 0 end,
  GREET = function(tvb, about) return about.id == 0 and PATTERNS[about.pattern] end,
  CONFIRM = function(tvb, about)
    return about.id == 0 and tvb:len() >= 17 + 64 and tvb(5, 4):uint() ~= 0
  end,
  ACCEPT = function(tvb, about) return about.id ~= 0 end,
  DATA = function(tvb, about) return about.id ~= 0 and about.has_messages end,
}

local function looks_certain(tvb, about)
  if about.counter then return about.id ~= 0 and about.counter < UInt64.new(0, 256) end
  if about.kind == "STREAM" or about.kind == "FEEDBACK" then return about.id ~= 0 end
  return RULES[about.kind] and RULES[about.kind](tvb, about)
end

sphtp:register_heuristic("udp", function(tvb, pinfo, root)
  if tvb:len() < 13 or math.floor(tvb(0, 1):uint() / 16) ~= 1 then return false end
  local about = notes(pinfo)
  local first = tvb(0, size_in_row(tvb)):tvb()
  local is_read, problem = pcall(read_datagram, first, 0, NO_TREE, about)
  if not is_read and getmetatable(problem) ~= Malformed then error(problem, 0) end
  if not is_read or not looks_certain(first, about) then return false end
  pinfo.conversation = sphtp
  dissect_datagram(tvb, pinfo, root)
  return true
end)

sphtp:register_heuristic("tcp", function(tvb, pinfo, root)
  if tvb:len() < SP_HEAD or tvb(0, 4):uint() ~= SP_MARK or tvb(6, 2):uint() ~= 0 then return false end
  if not SP_PROTOCOLS[tvb(4, 2):uint()] then return false end
  pinfo.conversation = sphtp
  -- Not by `sphtp.dissector`: as a dissector within a dissector it could not wait for more segments.
  dissect_connection(tvb, pinfo, root)
  return true
end)

local list = {}
for _, field in pairs(fields) do table.insert(list, field) end
sphtp.fields = list

DissectorTable.get("udp.port"):add_for_decode_as(sphtp)
DissectorTable.get("tcp.port"):add_for_decode_as(sphtp)
