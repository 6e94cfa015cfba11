-- Twin of decide.rs: the same decision, made inside Redis, where one command runs at a time.
-- Same names, same order; vectors/ holds both to the same answers. State version 1,
-- or 2 where a quota counts something else than requests.
--
-- KEYS[1]  the bucket, a hash:
--   policy      its text
--   plan        the same compiled (see below) is the name of the field that holds the clock, so
--               that one HGET both reads the bucket and shows that its policy is the caller's:
--               'seen', each token bucket's credit in units, then where they are not 0
--               'ahead paused', and while suspended 'since until', and where one call may go
--               first 'probe', from when or, once it has, `until`. `at` is `ahead` later than
--               bucket time at `seen`. Before a bucket has a policy this field is 'no policy'.
--   made        when it or its policy began
--   'window N'  used, newest entry, then the others from the oldest: pairs of moment and tokens
--   reason, by  while suspended
--   aged        until when windows were told of time that passed in a suspension
--   refused     refusals without a time since somebody passed: when the last was, and numbers of
--               who was refused
--   legend      for a person who looks: what the field named after the plan says
-- ARGV[1]  operation; when replaying, followed by '@' and the time to take in microseconds
--   take       2 numbers: cost wait_max_us policy's    3 plan  4 text  5 keep_ms
--              6.. 'window N' for each quota that is one
--   batch      as take, without its own cost (0 0 in its place); 6 three numbers for each group
--              of equal calls: cost wait_max_us calls; 7.. 'window N'
--   batch_of   as batch, where a call or the caller's policy tells of units: 7 their letters; each
--              group's three numbers are followed by one for each letter; 8.. 'window N'
--   set        2 numbers: pinned 0 policy's            3 plan  4 text
--              5 where given: only if the bucket's plan still is this one
--   suspend    2 for_us      3 reason       4 by     5 patience_us
--   give_back  2 granted_at  3 due          4 cost   5 before   6 other units, such as 't4000p3'
--   answered   2 granted_at  3 due          4 cost   5 other units
--   probe      2 granted_at  3 due
--   probed     2 patience_us
--   lower      2 quota  3 interval_us  4 tokens  5 resets_in_us  6 blur_us  7 unstoppable_us
--              8 is_shared (1 or 0)  9 reason  10 by  11, 12 where given: granted_at and due of the
--              call answered
--   refused    2 for_us      3 reason       4 by     5 patience_us   6 number of who was refused
--   resume, passed, look
--   numbers    packed doubles, big endian, since parsing text would be a tenth of the work: those
--              named, then the policy's keep_us and three a quota: rate unit capacity of a token
--              bucket, limit span_us -chunk of a window.
-- plan     '1 keep_us', then for each quota 'b rate unit burst interval_us'
--                                        or 'w limit span_us chunk interval_us'
--          '2 keep_us', the same, with a letter behind 'b' or 'w' where it does not count requests:
--          t tokens, i input tokens, o output tokens, p points, y bytes. A cost is of requests.
-- reply    take       {1, wait_us, now, due, before} granted, 4 in place of 1 where it goes first
--                     in a suspension; {2, retry_after_us, quota or 0 where
--                     suspended} denied; {3, cost_max, quota} never; then the policy's text
--                     where the bucket's is not the caller's. The usual grant, under the caller's
--                     policy and with nothing booked before it, is the field as written.
--          batch      {now, bucket_time, left_us, made or 0, before, whether one call may go first
--                     in a suspension (0 no, 1 it may, 2 it has, 3 the first of these does), in
--                     how long it may, runs, and for each run of calls with one moment its due and
--                     how many}, then as take where one was not granted, then the policy's text as
--                     there. Those behind it were not decided.
--          set        {changed}       suspend  {left_us}     resume  {was}
--          give_back  {given}         answered {moved}       look     {now, the hash}
--          probed     {changed}       probe    {goes}, then as batch up to `in how long`
--          lower      {tokens, left_us}   refused {by how many, left_us, stops}
--          passed     {were any}
--
-- All numbers are whole and below 2^53, so exact; '%d' prints them whole (tostring would not).
-- The usual call makes no function, parses nothing it does not need and asks the server four times:
-- TIME, HGET, HSET, PEXPIRE. Every look-up and every table counts here, hence few locals, `if` in
-- place of min and max, and `+ 0`, which makes a number of a text.

local call, match, format, ARGV, key = redis.call, string.match, string.format, ARGV, KEYS[1]
local op, now = ARGV[1], nil
if op ~= 'take' and op ~= 'batch' and string.find(op, '@', 1, true) then
  op, now = match(op, '^(.-)@(.*)$')
  now = now + 0
else
  local time = call('TIME')
  now = time[1] * 1000000 + time[2]
end
if op == 'look' then
  return {now, call('HGETALL', key)}
end

-- Reading: `numbers` holds three for each quota, from 3 * i - 2 on for quota i; `buckets` of the
-- `quotas` are token buckets.
local numbers, quotas, buckets, own, cost, wait_max_us, keep_us = nil, 0, 0, nil, nil, nil, nil
local groups, window_arg, units = nil, 6, nil
if op ~= 'take' then
  if op == 'batch' then
    op, groups, window_arg = 'take', ARGV[6], 7
  elseif op == 'batch_of' then
    op, groups, units, window_arg = 'take', ARGV[6], ARGV[7], 8
  end
end
if op == 'take' or op == 'set' then
  local packed, position, a, b, c = ARGV[2], nil, nil, nil, nil
  own = ARGV[3]
  cost, wait_max_us, keep_us, a, b, c, position = struct.unpack('>dddddd', packed)
  numbers, quotas, buckets = {a, b, c}, 1, c >= 0 and 1 or 0
  while position <= #packed do
    local n = 3 * quotas
    a, b, c, position = struct.unpack('>ddd', packed, position)
    numbers[n + 1], numbers[n + 2], numbers[n + 3], quotas = a, b, c, quotas + 1
    if c >= 0 then
      buckets = buckets + 1
    end
  end
end
local plan, clock, windows, hash, made = own, nil, nil, nil, nil
if op == 'take' then
  if groups then
    made = call('HGET', key, 'made')
  end
  if ARGV[window_arg] then
    local read, k = call('HMGET', key, own, unpack(ARGV, window_arg)), 1
    clock, windows = read[1], {}
    for i = 1, quotas do
      if numbers[3 * i] < 0 then
        k = k + 1
        windows[i] = read[k]
      end
    end
  else
    clock = call('HGET', key, own)
  end
end
-- `kinds`: the letter of what each quota counts, '' for requests; nil where all count requests.
local new, new_quotas, new_buckets, new_keep_us, kinds = numbers, quotas, buckets, keep_us, nil
if not clock then
  -- No bucket, or one of another policy: all of it is read.
  local all = call('HGETALL', key)
  hash, plan = {}, nil
  for i = 1, #all, 2 do
    hash[all[i]] = all[i + 1]
    if string.find(all[i], '^%d') then
      plan = all[i]
    end
  end
  clock = hash[plan or 'no policy']
  if all[1] and not clock then
    return redis.error_reply('PACELINE the hash under this key is not a bucket')
  end
  if plan then
    local version, kept, gates = match(plan, '^(%S+) (%S+)(.*)$')
    if version ~= '1' and version ~= '2' then
      return redis.error_reply('PACELINE state version ' .. version
        .. ' is not this script\'s (1 or 2): upgrade this process, or delete the bucket')
    end
    kinds = version == '2' and {} or nil
    numbers, quotas, buckets, keep_us, windows = {}, 0, 0, kept + 0, {}
    for kind, of, a, b, c in string.gmatch(gates, '(%S)(%S*) (%S+) (%S+) (%S+) %S+') do
      local n = 3 * quotas
      quotas = quotas + 1
      if kinds then
        kinds[quotas] = of
      end
      a, b, c = a + 0, b + 0, c + 0
      if kind == 'w' then
        numbers[n + 1], numbers[n + 2], numbers[n + 3] = a, b, -c
        windows[quotas] = hash['window ' .. quotas]
      else
        numbers[n + 1], numbers[n + 2], numbers[n + 3], buckets = a, b, c * b, buckets + 1
      end
    end
  elseif op ~= 'take' then
    numbers, quotas, buckets, keep_us = {}, 0, 0, nil
  end
end

local seen, paused, ahead, since, ends, probe, levels = now, 0, 0, 0, 0, 0, nil
if clock then
  -- The usual clocks are those of one or two token buckets with nothing behind their levels.
  local first, second
  if buckets == 1 and numbers[3] >= 0 then
    seen, first = match(clock, '^(%S+) (%-?%d+)$')
  elseif buckets == 2 and quotas == 2 and plan then
    seen, first, second = match(clock, '^(%S+) (%-?%d+) (%-?%d+)$')
  end
  if second then
    seen, levels = seen + 0, {first + 0, second + 0}
  elseif first then
    seen, levels = seen + 0, {first + 0}
  else
    local words, k = {}, 0
    for word in string.gmatch(clock, '%S+') do
      k = k + 1
      words[k] = word + 0
    end
    seen, levels, k = words[1], {}, 1
    for i = 1, plan and quotas or 0 do
      if numbers[3 * i] >= 0 then
        k = k + 1
        levels[i] = words[k]
      end
    end
    if words[k + 2] then
      ahead, paused = words[k + 1], words[k + 2]
      since, ends, probe = words[k + 3] or 0, words[k + 4] or 0, words[k + 5] or 0
    end
  end
end
local at, was_seen, was_suspended = seen - paused + ahead, seen, ends ~= 0

-- The clock as an operation at `now` finds it: a step back absorbed, a suspension that is over
-- added to the time paused.
if now < seen then
  local step = seen - now
  paused = paused - step
  if ends ~= 0 then
    since, ends = since - step, ends - step
    if probe ~= 0 then
      probe = probe - step
    end
  end
end
if ends ~= 0 and now >= ends then
  paused, since, ends, probe = paused + ends - since, 0, 0, 0
end
local bucket_time, left = now - paused, 0
if ends ~= 0 then
  bucket_time, left = since - paused, ends - now
end

local push, add, write_window, amount_of
if op ~= 'take' then
  -- What a booking holds of a quota's unit: of requests `cost`, of others as `others` tells.
  amount_of = function(i, cost_, others)
    if not kinds or kinds[i] == '' then
      return cost_ + 0
    end
    return (match(others or '', kinds[i] .. '(%d+)') or 0) + 0
  end
  -- Adds tokens taken at `time` to a window's text: an entry of fewer than `chunk` tokens is
  -- joined with them and then counts as of `time`.
  push = function(window, time, tokens, chunk)
    if not window then
      return format('%d %d %d', tokens, time, tokens)
    end
    local used, newest, held, others = match(window, '^(%S+) (%S+) (%S+)(.*)$')
    if newest + 0 == time or held + 0 < chunk then
      return format('%d %d %d%s', used + tokens, time, held + tokens, others)
    end
    return format('%d %d %d%s %s %s', used + tokens, time, tokens, others, newest, held)
  end

  -- Adds tokens taken at `time`, wherever that is among a window's entries, which are in two lists.
  -- One that is at most `near` later is joined with them.
  add = function(times, tokens, time, more, chunk, near)
    local k = 1
    while times[k] and times[k] < time do
      k = k + 1
    end
    if times[k] and times[k] - time <= near then
      tokens[k] = tokens[k] + more
    elseif k > 1 and tokens[k - 1] < chunk then
      times[k - 1], tokens[k - 1] = time, tokens[k - 1] + more
    else
      table.insert(times, k, time)
      table.insert(tokens, k, more)
    end
    if #times > 65 then
      local least = 1
      for j = 2, #times - 1 do
        if tokens[j] + tokens[j + 1] < tokens[least] + tokens[least + 1] then
          least = j
        end
      end
      tokens[least + 1] = tokens[least + 1] + tokens[least]
      table.remove(times, least)
      table.remove(tokens, least)
    end
  end

  -- Keeps a window's entries.
  write_window = function(i, used, times, tokens)
    local text = ''
    for j = 1, #times - 1 do
      text = format('%s %d %d', text, times[j], tokens[j])
    end
    windows[i] = format('%d %d %d%s', used, times[#times], tokens[#times], text)
    call('HSET', key, 'window ' .. i, windows[i])
  end
end

-- What the operation leaves: its reply, whether the bucket is written, whether it exists, and the
-- windows a take found: used, newest entry, where the others begin; the last of them as it left
-- it; and when all quotas it took from are full again.
local reply, writes, exists, found, taken, full = nil, false, clock, windows and {}, nil, nil

local stop, age
if op ~= 'take' then
  -- Has windows count the next `by_us` as time that has passed, although the bucket's clock stands
  -- still: what was taken until then leaves so much sooner, or later again where it is negative.
  age = function(by_us)
    for i = 1, quotas do
      if windows[i] then
        call('HSET', key, 'aged', format('%d', bucket_time))
        local used, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
        local times, tokens = {}, {}
        for time, held_ in string.gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
          time = time + 0
          if time <= bucket_time then
            time = math.min(time - by_us, bucket_time)
          end
          times[#times + 1], tokens[#tokens + 1] = time, held_ + 0
        end
        write_window(i, used + 0, times, tokens)
      end
    end
  end

  -- Suspends until the later of the present end and `for_us` from now; what is left of that, as is
  -- told. With patience one call goes first then.
  stop = function(for_us, reason, by, patience_us)
    local end_ = now + for_us
    -- Once the one call is under way, only what is told from now on holds.
    local told = probe ~= 0 and probe or ends
    local later = ends == 0 or probe == ends or end_ > told
    local known = (ends == 0 or probe == ends) and now or told
    if ends == 0 then
      -- The bucket's clock stops here.
      since = now
    end
    if patience_us == 0 and (end_ > ends or end_ == ends and probe ~= 0) then
      -- From now on nobody knows what the provider counts.
      if probe ~= 0 and probe ~= ends and probe > now then
        age(now - probe)
      end
      probe, ends = 0, end_
    elseif patience_us == 0 and probe ~= 0 and later then
      probe = end_
    elseif patience_us > 0 and (probe ~= 0 or later) then
      probe = later and end_ or probe
      ends = math.max(ends, probe + patience_us)
    end
    if later then
      call('HSET', key, 'reason', reason, 'by', by)
    end
    if patience_us > 0 and probe > known then
      age(probe - known)
    end
    left, writes, told = ends - now, true, ends - now
    if probe ~= 0 and probe ~= ends then
      told = math.max(probe - now, 0)
    end
    return told
  end
end

if op == 'take' then
  made = made and made + 0
  local given, runs, calls, from_group, was_planned = nil, nil, 1, 1, plan
  -- What a call takes from each quota, where that is not the same of all.
  local costs, next_group = nil, nil
  if kinds and not groups then
    costs = {}
    for i = 1, quotas do
      costs[i] = kinds[i] == '' and cost or 0
    end
  end
  if groups then
    -- What was found, then what was granted; `runs` counts numbers in `given`.
    given, runs, calls = {now, bucket_time, left, 0, bucket_time, 0, 0, 0}, 8, 0
    if probe ~= 0 then
      given[6], given[7] = probe == ends and 2 or 1, probe == ends and 0 or probe - now
    end
    if units and not kinds and (not plan or plan == own) and string.sub(own, 1, 2) == '2 ' then
      kinds = {}
      for of in string.gmatch(own, ' [bw](%S*)') do
        kinds[#kinds + 1] = of
      end
    end
    costs = kinds and {}
    next_group = function()
      cost, wait_max_us, calls, from_group = struct.unpack('>ddd', groups, from_group)
      if not costs and not units then
        return
      end
      local amounts = {[''] = cost}
      for i = 1, units and #units or 0 do
        amounts[string.sub(units, i, i)], from_group = struct.unpack('>d', groups, from_group)
      end
      for i = 1, kinds and quotas or 0 do
        costs[i] = amounts[kinds[i]] or 0
      end
    end
    if groups ~= '' then
      next_group()
    end
    if plan or calls > 0 then
      given[4] = made or now - 1
      if now < was_seen and given[4] < was_seen then
        given[4] = was_seen
      end
    end
  end
  if not plan and calls > 0 then
    -- New, or suspended before it had a policy: it starts with the caller's, as of now.
    at, levels = bucket_time, {}
    for i = 1, quotas do
      levels[i] = numbers[3 * i]
    end
  end
  if given and at > bucket_time and (plan or calls > 0) then
    given[5] = at
  end
  exists = plan
  -- Once for a take; for a batch until a call is not granted.
  while calls > 0 do
    local t0 = bucket_time
    if at > t0 then
      t0 = at
    end
    local due, quota, cost_max, cost_max_quota = t0, 1, nil, nil
    for i = 1, quotas do
      if costs then
        cost = costs[i]
      end
      -- The earliest moment from t0 on at which this quota has room; levels are as of `at`.
      local n, earliest, most = 3 * i, t0, nil
      local rate, unit, capacity = numbers[n - 2], numbers[n - 1], numbers[n]
      if capacity >= 0 then
        most = capacity / unit
        local credit = levels[i] + (t0 - at) * rate
        if credit > capacity then
          credit = capacity
        end
        local short = cost * unit - credit
        if short > 0 and rate > 0 and cost > 0 then
          earliest = t0 + math.ceil(short / rate)
        end
      else
        local limit, span_us = rate, unit
        most = limit
        local window = windows[i]
        if window and cost > 0 then
          local used, newest, held, from = match(window, '^(%S+) (%S+) (%S+)()')
          used, newest, held = used + 0, newest + 0, held + 0
          found[i] = {used, newest, held, from}
          -- Leave out the oldest until the call fits; those that have left by t0 go for free.
          while used + cost > limit and used > 0 do
            local time, tokens, behind = match(window, '^ (%S+) (%S+)()', from)
            if not time then
              time, tokens = newest, used
            end
            if time + span_us > t0 then
              earliest = time + span_us
            end
            used, from = used - tokens, behind
          end
        end
      end
      if cost > most and (not cost_max or most < cost_max) then
        cost_max, cost_max_quota = most, i
      end
      if earliest > due then
        due, quota = earliest, i
      end
    end

    local wait_us, retry_after_us, kind, is_early = due - bucket_time + left, nil, 1, false
    if ends ~= 0 and probe ~= 0 and probe ~= ends then
      -- As if the clock had gone on at `probe`: then one call may go first.
      local goes_at = due - bucket_time + probe
      if goes_at <= now and not cost_max then
        kind, wait_us, probe = 4, 0, ends
      elseif goes_at < ends then
        retry_after_us = goes_at - now
      end
      -- Windows count the time until one may go first as passed, and take that back where somebody
      -- ends it early: nothing is booked on it.
      is_early = kind == 1 and probe > now and buckets < quotas
    end
    if cost_max then
      reply = {3, cost_max, cost_max_quota}
      break
    elseif wait_us > wait_max_us or is_early then
      reply = {2, retry_after_us or wait_us, left > 0 and 0 or quota}
      break
    end
    if not plan then
      if format('%d', 9007199254740991) ~= '9007199254740991' then
        return redis.error_reply('PACELINE this server cannot print whole numbers above 2^31')
      end
      call('HSET', key, 'policy', ARGV[4])
      if clock then
        call('HDEL', key, 'no policy')
      else
        call('HSET', key, 'made', format('%d', now - 1))
      end
      plan = own
    end
    full = due
    for i = 1, quotas do
      local n, back = 3 * i, nil
      local capacity = numbers[n]
      if costs then
        cost = costs[i]
      end
      if capacity >= 0 then
        local rate = numbers[n - 2]
        local credit = levels[i] + (due - at) * rate
        if credit > capacity then
          credit = capacity
        end
        credit = credit - cost * numbers[n - 1]
        -- Of a limit of 0 this is no number, and below not greater than any.
        levels[i], back = credit, due + (capacity - credit) / rate
      elseif cost == 0 then
        back = windows[i] and match(windows[i], '^%S+ (%S+)') + numbers[n - 1] or due
      else
        local span_us, window, is = numbers[n - 1], windows[i], found[i]
        if not is or is[2] + span_us <= due then
          window = format('%d %d %d', cost, due, cost)
        else
          -- What has left by `due` is dropped, oldest first. Then as `push`.
          local used, newest, held, from, others = is[1], is[2], is[3], is[4], ''
          while from <= #window do
            local time, tokens, behind = match(window, '^ (%S+) (%S+)()', from)
            if time + span_us > due then
              others = string.sub(window, from)
              break
            end
            used, from = used - tokens, behind
          end
          if newest == due or held < -capacity then
            window = format('%d %d %d%s', used + cost, due, held + cost, others)
          else
            window = format('%d %d %d%s %d %d', used + cost, due, cost, others, newest, held)
          end
        end
        windows[i], taken, back = window, window, due + span_us
      end
      if back > full then
        full = back
      end
    end
    writes, exists, at = true, true, due
    if not given then
      if t0 > bucket_time or ends ~= 0 or was_planned and was_planned ~= own then
        reply = {kind, wait_us, now, due, t0}
      end
      break
    end

    -- How many more of the group fit at the same moment; they are taken in one step.
    local more = calls - 1
    if kind == 4 then
      given[6], given[7], more = 3, 0, 0
    end
    for i = 1, more > 0 and quotas or 0 do
      local n, fits = 3 * i, nil
      if costs then
        cost = costs[i]
      end
      if cost == 0 then
        fits = more
      elseif numbers[n] >= 0 then
        fits = levels[i] / (cost * numbers[n - 1])
      else
        fits = (numbers[n - 2] - match(windows[i], '^%S+')) / cost
      end
      if fits < more then
        more = math.floor(fits)
        -- A quotient just below a whole number may have been rounded up to it.
        if numbers[n] >= 0 and more * cost * numbers[n - 1] > levels[i] then
          more = more - 1
        end
      end
    end
    for i = 1, more > 0 and quotas or 0 do
      local n = 3 * i
      if costs then
        cost = costs[i]
      end
      if cost == 0 then
        -- Nothing is taken.
      elseif numbers[n] >= 0 then
        levels[i] = levels[i] - more * cost * numbers[n - 1]
        local back = due + (numbers[n] - levels[i]) / numbers[n - 2]
        if back > full then
          full = back
        end
      else
        local used, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
        taken = format('%d %s %d%s', used + more * cost, newest, held + more * cost, others)
        windows[i] = taken
      end
    end
    if runs > 8 and given[runs - 1] == due then
      given[runs] = given[runs] + 1 + more
    else
      given[runs + 1], given[runs + 2], runs = due, 1 + more, runs + 2
    end
    calls = calls - 1 - more
    if calls == 0 and from_group <= #groups then
      next_group()
    end
  end
  if given then
    given[8] = (runs - 8) / 2
    for i = 1, reply and 3 or 0 do
      given[runs + i] = reply[i]
    end
    reply = given
  end
  if was_planned ~= own and was_planned then
    reply[#reply + 1] = hash.policy
  end
  if was_planned and now < was_seen and (given or was_seen - now > 10000000) then
    -- A step back is made good: by a batch at once, since sleepers look by it, else where it would
    -- pause the refill of a bucket whose calls are all refused for longer than ten seconds.
    writes = true
  end

elseif op == 'give_back' then
  local granted_at, due = ARGV[2] + 0, ARGV[3] + 0
  local stands = plan and granted_at > hash.made + 0 and (now >= was_seen or granted_at > was_seen)
  if not stands or due > at then
    return {0}
  end
  local before = ARGV[5] + 0
  -- A booking at the bucket's moment takes that back with it, though never before the one that
  -- came before it, nor before now. Not where there is a window: it has forgotten what had left
  -- by then.
  local last, back_to = due == at, at
  for i = 1, quotas do
    last = last and numbers[3 * i] >= 0
  end
  if last then
    back_to = math.min(at, math.max(bucket_time, before))
  end
  for i = 1, quotas do
    local n, cost_ = 3 * i, amount_of(i, ARGV[4], ARGV[6])
    local rate, unit, capacity = numbers[n - 2], numbers[n - 1], numbers[n]
    if capacity >= 0 then
      local refilled = (at - due) * rate
      local back = math.max(cost_ * unit - refilled, 0)
      -- As of an earlier moment the credit may be negative, where another booking of the same
      -- moment stands.
      local earned = (at - back_to) * rate
      levels[i] = math.min(levels[i] + back, capacity) - earned
    elseif windows[i] and due + unit > at and due > (hash.aged or 0) + 0 then
      -- Once its span is over, its tokens have left the window by themselves. Else they come out
      -- of the first entries that can hold them.
      local _, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
      local window, back = nil, cost_
      for time, tokens in string.gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
        time, tokens = time + 0, tokens + 0
        if time >= due then
          local out = math.min(back, tokens)
          tokens, back = tokens - out, back - out
        end
        if tokens > 0 then
          -- A chunk of 0 joins nothing: the other entries stay as they are.
          window = push(window, time, tokens, 0)
        end
      end
      windows[i] = window
      if window then
        call('HSET', key, 'window ' .. i, window)
      else
        call('HDEL', key, 'window ' .. i)
      end
    end
  end
  at = back_to
  reply, writes = {1}, true

elseif op == 'answered' then
  local granted_at, due, moved = ARGV[2] + 0, ARGV[3] + 0, 0
  local stands = plan and granted_at > hash.made + 0 and (now >= was_seen or granted_at > was_seen)
  local i = 0
  for interval in string.gmatch(stands and plan or '', ' [bw]%S* %S+ %S+ %S+ (%S+)') do
    i = i + 1
    local span_us, chunk, cost_ = numbers[3 * i - 1], -numbers[3 * i], amount_of(i, ARGV[4], ARGV[5])
    if numbers[3 * i] < 0 and windows[i] and span_us > interval + 0 and due + span_us > at
      and due > (hash.aged or 0) + 0 then
      -- Its tokens come out of the first entries that can hold them, and count as of `time`.
      local time, left, times, tokens = bucket_time - (span_us - interval), cost_, {}, {}
      local used, newest, held, others = match(windows[i], '^(%S+) (%S+) (%S+)(.*)$')
      for at_, held_ in string.gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
        at_, held_ = at_ + 0, held_ + 0
        if at_ == due or at_ > due and chunk > 1 then
          local out = math.min(left, held_)
          held_, left = held_ - out, left - out
        end
        if held_ > 0 then
          times[#times + 1], tokens[#tokens + 1] = at_, held_
        end
      end
      if left < cost_ then
        add(times, tokens, time, cost_ - left, chunk, 0)
        write_window(i, used + 0, times, tokens)
        moved = moved + cost_ - left
      end
    end
  end
  reply, writes = {moved > 0 and 1 or 0}, moved > 0

elseif op == 'lower' then
  local quota, interval_us, said = ARGV[2] + 0, ARGV[3] + 0, ARGV[4] + 0
  local resets_in, blur_us, unstoppable_us = ARGV[5] + 0, ARGV[6] + 0, ARGV[7] + 0
  local is_shared, granted_at, sent = ARGV[8] == '1', ARGV[11], (ARGV[12] or bucket_time) + 0
  local stands = plan and not granted_at
  if plan and granted_at then
    granted_at = granted_at + 0
    stands = granted_at > hash.made + 0 and (now >= was_seen or granted_at > was_seen)
  end
  local i, here = 0, false
  for interval in string.gmatch(stands and plan or '', ' [bw]%S* %S+ %S+ %S+ (%S+)') do
    i = i + 1
    here = here or i == quota and interval + 0 == interval_us
  end
  local n, lowered, stops = 3 * quota, 0, false
  if here and numbers[n] >= 0 then
    local unit = numbers[n - 1]
    local most = said * unit + math.max(at - sent, 0) * numbers[n - 2]
    if most < levels[quota] then
      lowered = math.floor((levels[quota] - most + unit - 1) / unit)
      levels[quota] = most
    end
  elseif here then
    local limit, span_us, chunk = numbers[n - 2], numbers[n - 1], -numbers[n]
    -- In a suspension that time passes before the bucket's clock goes on.
    local told = probe ~= 0 and probe ~= ends and math.max(probe - now, 0) or left
    local resets = math.max(math.min(resets_in - told, span_us), 0)
    local time = bucket_time + resets - span_us
    -- No provider counts what is older than its interval.
    local start = bucket_time + math.max(resets - blur_us, 0) - span_us
    local used, later, soon, own, times, tokens = 0, 0, 0, 0, {}, {}
    if windows[quota] then
      local newest, held, others
      used, newest, held, others = match(windows[quota], '^(%S+) (%S+) (%S+)(.*)$')
      for at_, held_ in string.gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
        at_, held_ = at_ + 0, held_ + 0
        times[#times + 1], tokens[#tokens + 1] = at_, held_
        if at_ > sent then
          later = later + held_
          if at_ <= bucket_time + unstoppable_us then
            soon = soon + held_
          end
        end
        if at_ >= start then
          own = own + held_
        end
      end
    end
    -- The most tokens that the policy's token buckets let through in a span.
    local function paced(span)
      local most = math.huge
      for i = 1, quotas do
        local rate, unit, capacity = numbers[3 * i - 2], numbers[3 * i - 1], numbers[3 * i]
        local units = math.max(span, 0) * rate
        if capacity >= 0 and units < 9007199254740992 then
          local whole = math.floor(units / unit)
          if whole * unit > units then
            whole = whole - 1
          end
          most = math.min(most, whole + math.floor(capacity / unit))
        end
      end
      return most
    end
    -- An entry that is joined counts as of its newest call, the others may be earlier: some of those
    -- behind the answered call are none, and some that are about to go stand later.
    local most = paced(bucket_time + unstoppable_us - sent)
    if most == math.huge then
      most = soon + chunk - 1
    end
    soon, later = math.min(later, most), math.max(later - (chunk - 1), 0)
    -- What leaves before the last place that is booked is forgotten already, and counts there.
    local forgotten_us, forgotten = at - span_us - start, 0
    if forgotten_us > 0 then
      forgotten = math.min(paced(forgotten_us), math.max(limit - own + later, 0))
    end
    local missing = math.min(limit - said + later - own - forgotten, limit)
    if missing > 0 and time + span_us > at then
      add(times, tokens, time, missing, chunk, math.floor(interval_us / 64))
      write_window(quota, used + missing, times, tokens)
      lowered = missing
    end
    -- Some more go to others at the same time.
    stops = is_shared and soon > 0 and said <= soon + 1 + math.floor(limit / 100)
  end
  reply, writes = {lowered, 0}, lowered > 0
  if stops and resets_in > 0 and ends == 0 then
    reply[2] = stop(resets_in, ARGV[9], ARGV[10], 1)
  end

elseif op == 'refused' then
  local by, count, known = ARGV[6], 0, ''
  local last, others = match(hash.refused or '', '^(%S+)(.*)$')
  if last and now - last >= 0 and now - last <= 120000000 then
    known = others
  end
  for other in string.gmatch(known, '%S+') do
    count = count + 1
    if other == by then
      by = nil
    end
  end
  if by and count < 8 then
    known, count = known .. ' ' .. by, count + 1
  end
  if not clock then
    call('HSET', key, 'made', format('%d', now - 1))
  end
  call('HSET', key, 'refused', format('%d%s', now, known))
  reply, writes, exists = {count, 0, count > 1 and ends == 0 and 1 or 0}, true, true
  local for_us = ARGV[2] + 0
  if ends ~= 0 and probe ~= 0 then
    -- Most likely the one call that went first: as long again as it has lasted.
    for_us = math.max(for_us, math.min(now - since, 60000000))
  end
  if count > 1 or ends ~= 0 and probe ~= 0 then
    reply[2] = stop(for_us, ARGV[3], ARGV[4], ARGV[5] + 0)
  end

elseif op == 'passed' then
  reply = {call('HDEL', key, 'refused')}

elseif op == 'suspend' then
  if not clock then
    call('HSET', key, 'made', format('%d', now - 1))
  end
  reply, exists = {stop(ARGV[2], ARGV[3], ARGV[4], (ARGV[5] or 0) + 0)}, true

elseif op == 'resume' then
  local was = ends ~= 0
  if was then
    if probe ~= 0 and probe ~= ends and probe > now then
      -- Windows have been told of time that does not pass now.
      age(now - probe)
    end
    paused, since, ends, probe, left = paused + now - since, 0, 0, 0, 0
  end
  reply, writes = {was and 1 or 0}, clock

elseif op == 'probe' then
  local goes, is_made = 0, plan and hash.made + 0 or 0
  if plan and now < was_seen then
    is_made = math.max(is_made, was_seen)
  end
  if plan and probe ~= 0 and probe ~= ends and ARGV[2] + 0 > is_made
    and math.max(ARGV[3] - bucket_time, 0) + probe <= now then
    goes, probe, writes = 1, ends, true
  end
  local kind = 0
  if probe ~= 0 then
    kind = probe == ends and 2 or 1
  end
  reply = {goes, now, bucket_time, left, is_made, 0, kind, kind == 1 and probe - now or 0}

elseif op == 'probed' then
  local patience_us = ARGV[2] + 0
  if probe == 0 or probe ~= ends then
    reply = {0}
  elseif patience_us == 0 then
    paused, since, ends, probe, left = paused + now - since, 0, 0, 0, 0
    reply, writes = {1}, true
  else
    probe, ends = now, math.max(ends, now + patience_us)
    left = ends - now
    reply, writes = {1}, true
  end

elseif op == 'set' then
  local pinned_us = 315360000000000
  if cost == 1 then
    new_keep_us = pinned_us
  end
  if ARGV[5] and plan ~= ARGV[5] then
    return {0}
  end
  local new_version, new_gates = match(own, '^(%S+) %S+(.*)$')
  local equal = plan and match(plan, '^%S+ %S+(.*)$') == new_gates
  if equal and keep_us >= pinned_us then
    -- Workers that set at start-up what an operator pinned do not unpin it.
    new_keep_us = pinned_us
  end
  local new_plan = format('%s %d%s', new_version, new_keep_us, new_gates)
  if equal then
    local changed = plan ~= new_plan or hash.policy ~= ARGV[4]
    keep_us = new_keep_us
    if changed then
      call('HDEL', key, plan)
      call('HSET', key, 'policy', ARGV[4], new_plan, clock)
    end
    reply = {changed and 1 or 0}
  else
    -- floor(a * b / c) for a < c < 2^51, by long division over b's binary digits.
    local function scale(a, b, c)
      local bit = 1
      while bit * 2 <= b do
        bit = bit * 2
      end
      local quotient, rest = 0, 0
      while bit >= 1 do
        quotient, rest = quotient * 2, rest * 2
        if b >= bit then
          b, rest = b - bit, rest + a
        end
        local times = math.floor(rest / c)
        quotient, rest, bit = quotient + times, rest - times * c, bit / 2
      end
      return quotient
    end

    -- For each new quota the old one it goes on from: first one of the same shape, unit and
    -- interval, in order, then one of the same shape and unit.
    local function shapes(of)
      local list = {}
      for kind, interval in string.gmatch(of, '(%S+) %S+ %S+ %S+ (%S+)') do
        list[#list + 1] = {kind, interval}
      end
      return list
    end
    local new_shapes, old_shapes = shapes(new_gates), shapes(plan and match(plan, '^%S+ %S+(.*)$') or '')
    local from, taken = {}, {}
    for same_interval = 1, 0, -1 do
      for i = 1, new_quotas do
        for j = 1, from[i] and 0 or quotas do
          local new, old = new_shapes[i], old_shapes[j]
          if not taken[j] and new[1] == old[1] and (same_interval == 0 or new[2] == old[2]) then
            from[i], taken[j] = j, true
            break
          end
        end
      end
    end

    -- What is left of one quota under the one that follows it.
    local new_levels, new_windows = {}, {}
    for i = 1, new_quotas do
      local j = from[i]
      local n, unit, capacity = j and 3 * j, new[3 * i - 1], new[3 * i]
      if capacity >= 0 then
        if not j then
          new_levels[i] = capacity
        elseif at > bucket_time then
          new_levels[i] = 0
        else
          local old = numbers[n - 1]
          local credit = math.min(levels[j] + (bucket_time - at) * numbers[n - 2], numbers[n])
          -- Negative where a booking ahead stands, which is void.
          credit = math.max(credit, 0)
          local tokens = math.floor(credit / old)
          local scaled = tokens * unit + scale(credit - tokens * old, unit, old)
          new_levels[i] = math.min(scaled, capacity)
        end
      elseif j and windows[j] then
        local chunk, chunk_old = -capacity, -numbers[n]
        local before, kept = -math.huge, nil
        local _, newest, held, others = match(windows[j], '^(%S+) (%S+) (%S+)(.*)$')
        for time, tokens in string.gmatch(others .. ' ' .. newest .. ' ' .. held, '(%S+) (%S+)') do
          time, tokens = time + 0, tokens + 0
          if time <= bucket_time then
            kept = push(kept, time, tokens, chunk)
          elseif before <= bucket_time and math.min(tokens, chunk_old) > 1 then
            -- Fewer than a chunk of its tokens may be of calls made until now.
            kept = push(kept, bucket_time, math.min(tokens, chunk_old) - 1, chunk)
          end
          before = time
        end
        new_windows[i] = kept
      end
    end
    for i = 1, quotas do
      if windows[i] then
        call('HDEL', key, 'window ' .. i)
      end
    end
    for i, window in pairs(new_windows) do
      call('HSET', key, 'window ' .. i, window)
    end
    call('HDEL', key, plan or 'no policy')
    -- Bookings granted up to here are void.
    made = now
    if hash.made then
      made = math.max(now, hash.made + 1, now < was_seen and was_seen + 1 or 0)
    end
    call('HSET', key, 'policy', ARGV[4], 'made', format('%d', made))
    at, plan, keep_us = bucket_time, new_plan, new_keep_us
    numbers, quotas, buckets, levels, windows =
      new, new_quotas, new_buckets, new_levels, new_windows
    reply, writes, exists = {1}, true, true
  end

else
  return redis.error_reply('PACELINE unknown operation ' .. op)
end

if writes then
  local text
  if now < was_seen and op ~= 'set' then
    -- The clock has stepped back: by it bookings made before cannot be told from later ones.
    made = call('HGET', key, 'made')
    if made and made + 0 < was_seen then
      call('HSET', key, 'made', format('%d', was_seen))
    end
  end
  if buckets == 1 and numbers[3] >= 0 then
    text = format('%d %d', now, levels[1])
  elseif buckets == 2 and quotas == 2 then
    text = format('%d %d %d', now, levels[1], levels[2])
  else
    text = format('%d', now)
    for i = 1, quotas do
      if numbers[3 * i] >= 0 then
        text = format('%s %d', text, levels[i])
      end
    end
  end
  ahead = at - now + paused
  if ahead ~= 0 or paused ~= 0 or ends ~= 0 then
    text = format('%s %d %d', text, ahead, paused)
    if ends ~= 0 then
      text = format('%s %d %d', text, since, ends)
      if probe ~= 0 then
        text = format('%s %d', text, probe)
      end
    end
  end
  if op == 'take' and taken and ARGV[window_arg] and not ARGV[window_arg + 1] and plan == own then
    call('HSET', key, plan, text, ARGV[window_arg], taken)
  elseif op == 'take' and windows then
    local fields, n = {plan, text}, 2
    for i = 1, quotas do
      if windows[i] then
        fields[n + 1], fields[n + 2], n = 'window ' .. i, windows[i], n + 2
      end
    end
    call('HSET', key, unpack(fields))
  else
    call('HSET', key, plan or 'no policy', text)
  end
  if not clock then
    -- Behind all that is read, so that nobody looks past it.
    call('HSET', key, 'legend', 'value: seen_us {units}')
  end
  -- The usual grant, told in the words in which it was written.
  reply = reply or text
  if was_suspended and ends == 0 then
    call('HDEL', key, 'reason', 'by')
  end
end

-- Who waits is told that something has changed. Where this is not allowed they look, only later.
if op ~= 'take' and (op == 'suspend' or op == 'refused' or op == 'lower' and reply[2] > 0
  or reply[1] == 1 and (op == 'resume' or op == 'set' or op == 'probed')) then
  -- Of a refusal that stops nobody the others only have to know when they pass.
  redis.pcall('PUBLISH', key, op == 'refused' and reply[2] > 0 and 'stopped' or op)
end

-- Kept until it is full again, with all bookings and any suspension over, and at least keep_us.
-- A millisecond more, since Redis expires by a coarser clock.
if exists then
  if not full then
    full = at
    for i = 1, quotas do
      local n = 3 * i
      local rate, capacity, back = numbers[n - 2], numbers[n], at
      if capacity < 0 then
        if windows[i] then
          back = match(windows[i], '^%S+ (%S+)') + numbers[n - 1]
        end
      elseif rate > 0 then
        back = at + (capacity - levels[i]) / rate
      end
      if back > full then
        full = back
      end
    end
  end
  local us = full - bucket_time + left
  if us < left then
    us = left
  end
  if op == 'take' and plan == own and us <= keep_us then
    -- The usual case needs no number made into a text.
    call('PEXPIRE', key, ARGV[5])
  else
    -- Without a policy it is kept as any idle bucket.
    keep_us = keep_us or 3000000
    if us < keep_us then
      us = keep_us
    end
    call('PEXPIRE', key, format('%d', us / 1000 + 2))
  end
end
return reply
