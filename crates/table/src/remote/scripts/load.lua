-- Rows of the record store in bulk: never in place of what is newer, never what was deleted.
-- KEYS  1 meta · 2 rows · 3 deleted · 4 order · then the counters · then the reservations of each unique column and shard
-- ARGV  1 epoch · 2 loaded field · 3 since · 4 flags: s (shared) or -, o (ordered) or - · 5 counters (number of keys)
--       then for each row: key, a head of zeros and the row, number of counted values, { key's index, fingerprint }…,
--       number of claims, { key's index, fingerprint }…
-- Answers { rows taken, key, fingerprint's key index, fingerprint, holder … of each value that somebody else holds }.
local meta = redis.call('HMGET', KEYS[1], 'epoch', ARGV[2], 'forgotten', 'full')
if meta[1] ~= ARGV[1] then return redis.error_reply('EPOCH another server, or another history of it') end
local since = tonumber(ARGV[3])
local may_add = not meta[2] or string.sub(ARGV[4], 1, 1) == 's'
if may_add and tonumber(meta[3] or '0') > since then return redis.error_reply('STALE what was deleted has been forgotten') end
local order = string.sub(ARGV[4], 2, 2) == 'o'
local has_deleted = may_add and redis.call('ZCARD', KEYS[3]) > 0
local answer = { 0 }
local at = 6
-- A reservation of what is there: it is undone by nobody.
local UNHELD = struct.pack('<I8', 0)
while at <= #ARGV do
  local key, row = ARGV[at], ARGV[at + 1]
  local counted = tonumber(ARGV[at + 2])
  local claims_at = at + 3 + 2 * counted
  local claims = tonumber(ARGV[claims_at])
  local deleted = has_deleted and redis.call('ZSCORE', KEYS[3], key)
  local is_new = may_add and not (deleted and tonumber(deleted) > since) and redis.call('HSETNX', KEYS[2], key, row) == 1
  if is_new then
    answer[1] = answer[1] + 1
    if order then redis.call('ZADD', KEYS[4], 0, key) end
    for i = 1, counted do
      redis.call('HINCRBY', KEYS[tonumber(ARGV[at + 1 + 2 * i])], ARGV[at + 2 + 2 * i], 1)
    end
    for i = 1, claims do
      local where, value = ARGV[claims_at + 2 * i - 1], ARGV[claims_at + 2 * i]
      if redis.call('HSETNX', KEYS[tonumber(where)], value, UNHELD .. key) == 0 then
        local holder = redis.call('HGET', KEYS[tonumber(where)], value)
        if string.sub(holder, 9) ~= key then
          answer[#answer + 1] = key
          answer[#answer + 1] = where
          answer[#answer + 1] = value
          answer[#answer + 1] = holder
        end
      end
    end
  else
    local found = redis.call('HGET', KEYS[2], key)
    if found then
      local kind, version = struct.unpack('<BI7', found)
      if kind == 1 and version <= since and not meta[4] then
        answer[1] = answer[1] + 1
        redis.call('HSET', KEYS[2], key, struct.pack('<BI7', 0, version) .. string.sub(row, 9))
      end
    end
  end
  at = claims_at + 2 * claims + 1
end
return answer
