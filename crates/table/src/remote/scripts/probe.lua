-- Tries what the other scripts and plain commands use, on a key of its own: what a server lacks is told at the start, and not by the
-- first write.
-- KEYS  1 the key
-- ARGV  1 epoch, not looked at
-- Answers, for each command that was refused: the command, what the server says.
local key, refused = KEYS[1], {}
local function try(...)
  local answer = redis.pcall(...)
  if type(answer) == 'table' and answer.err then
    refused[#refused + 1] = table.concat({ ... }, ' ')
    refused[#refused + 1] = answer.err
  end
end
-- The library is asked as the scripts do; where there is none, its name alone is an error.
local has_struct, packed = pcall(function() return struct.unpack('<I2', struct.pack('<BI7', 7, 0)) end)
if not has_struct or packed ~= 7 then
  refused[1], refused[2] = 'struct', 'scripts have no such library of Lua, by which they read and write rows: ' .. tostring(packed)
end
try('DEL', key)
for _, command in ipairs({
  { 'HSET', key, 'a', '1' }, { 'HSETNX', key, 'b', '1' }, { 'HGET', key, 'a' }, { 'HMGET', key, 'a', 'b' }, { 'HEXISTS', key, 'a' },
  { 'HINCRBY', key, 'a', '1' }, { 'HLEN', key }, { 'HSTRLEN', key, 'a' }, { 'HGETALL', key }, { 'HRANDFIELD', key, '1', 'WITHVALUES' },
  { 'HSCAN', key, '0', 'COUNT', '1' }, { 'HDEL', key, 'a' }, { 'UNLINK', key },
  { 'XADD', key, '1-0', 'a', '1' }, { 'XLEN', key }, { 'XRANGE', key, '-', '+', 'COUNT', '1' },
  { 'XREVRANGE', key, '+', '-', 'COUNT', '1' }, { 'XTRIM', key, 'MINID', '2-0' }, { 'UNLINK', key },
  { 'ZADD', key, '1', 'a' }, { 'ZSCORE', key, 'a' }, { 'ZCARD', key }, { 'ZCOUNT', key, '1', '2' },
  { 'ZRANGEBYLEX', key, '-', '+', 'LIMIT', '0', '1' }, { 'ZREVRANGEBYSCORE', key, '2', '1', 'LIMIT', '0', '1' },
  { 'ZREMRANGEBYSCORE', key, '2', '2' }, { 'ZREM', key, 'b' }, { 'UNLINK', key },
  { 'SET', key, 'a', 'PX', '1000' }, { 'GET', key }, { 'EXISTS', key }, { 'PTTL', key }, { 'PEXPIRE', key, '1000' }, { 'PERSIST', key },
  { 'RENAME', key, key }, { 'UNLINK', key },
}) do try(unpack(command)) end
return refused
