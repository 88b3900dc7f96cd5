select coalesce(null::varchar(3), 'a text that is longer');
select case when false then 'ab'::varchar(3) else 'a text that is longer' end;
select greatest('ab'::varchar(3), 'a text that is longer', 'b');
select least('ab'::varchar(3), 'a text that is longer', 'b'::text);
select coalesce('ab'::char(5), 'x'); --refused
select coalesce('ab'::char(5), null) || '|';
select coalesce('ab'::char(5), 'ab'::char(5));
select 'ab'::char(5) like 'ab';
select 'ab'::char(5) like 'ab   ';
select 'ab'::char(5) like 'ab%';
select 'ab'::char(5) ilike 'AB___';
select 'ab' like 'ab'::char(5);
select 'ab'::char(5) not like 'ab';
select 'foo' /* c */ 'bar';
select 'foo' /* c {nl} */ 'bar';
select 'foo'{nl}/* c */{nl}'bar';
select concat(true);
select concat(true, 1, null, 'x');
select concat('ab'::char(4), '|');
select concat(1.50, false);
select 0.0 * -1;
select -1.5 * 0;
select round(-0.4);
select ceil(-0.5);
select abs(-0.0);
select 12345678901234567890 * 12345678901234567890; --refused
select 1234567890.123456789 * 1234567890.123456789; --refused
select 0.12345678901234567890 * 0.12345678901234567890; --refused
select 1/3.0;
select 1/3e10;
select 1e20/3;
select 100000000000000000000000000/3.0;
select 10.0/4;
select -7/2.0;
select 5.5 % 2;
select -5.5 % 2;
select 5 % 2.50;
select 1e300::float8 * 10;
select (-1e300)::float8;
select 1.7e308::float8*10;
select nullif(13, 2.5)/2;
select nullif(13, 13);
select nullif(13, 13.0);
select nullif('a', 'b');
select nullif(1::int2, 2::int8);
select nullif(2, 3::float8)/4;
select nullif('a'::varchar(3), 'b');
select nullif('a'::char(3), 'a  ');
select nullif(date '2001-01-01', timestamp '2001-01-01');
select nullif(timestamp '2001-01-01', date '2001-01-02');
select nullif(null, 1);
select nullif(1, null);
select nullif('1', 1);
select nullif(1, 'x');
select + 'text';
select + 'text'::text;
select + '1';
select + true;
select + date '2001-01-01';
select - 'text';
select - 'text'::text;
select - true;
select 1 is unknown;
select 1 is not unknown;
select null is unknown;
select 'x' is unknown;
select true is unknown;
select 'yes' is true;
select 1 is true;
select 1 is not true;
select '123'::int2;
select (-32768)::int2;
select abs(-2147483648);
select -1 % 5;
select 'abc'::name;
select repeat('x', 70)::name;
select length(repeat('x', 70)::name);
select repeat('é', 40)::name;
select 'abc'::name = 'abc';
select 'abc'::name || 'd';
select 'ab'::char(5) = 'ab  '::varchar;
select 'ab'::char(5) = 'ab  '::text;
select 'ab  '::varchar = 'ab'::char(5);
select 'ab'::char(5) = 'ab  ';
select 'ab'::char(5) < 'ab ';
select 'NaN'::numeric; --refused
select 'inf'::numeric; --refused
select '1e-30'::numeric; --refused
select '1_0'::numeric;
select ' 12.50 '::numeric;
select '0x1'::numeric;
select round(2.5, 1);
select round(1234.567, -2);
select round(1234.567, -5);
select round(0.5, 30); --refused
select round(5, 2);
select floor(-2.00);
select ceil(2.000);
select 2.0 / 3;
select 7 / 3.00;
select 1.0 / 7;
select 1.0000 / 3;
select 0 / 5.0;
select 1 / 0.0;
select 1e15 / 7;
select 1e16 / 7;
select 12345.678 / 0.001;
select 0.001 / 12345.678;
select 99999999999999 / 7.0;
select 1e-10 / 3;
select (.5 isnull), ('a' isnull), null isnull, 1 notnull;
select null not in ('1e3'::text, 2.50), -32768 not in ('NaN', 1e-300::float8), null in (timestamp '2024-02-29', 2147483647);
select 'A' not between 'ß' and -2147483648;
select '-5' between 1e-5 and timestamptz '2000-01-01 00:00 PST';
select coalesce(timestamptz '2000-01-01 00:00 PST', 'a%', timestamp '-infinity');
select timestamptz '2000-01-01 00:00 PST' not between timestamptz '2024-02-29 12:34:56+02' and 'f';
select timestamptz '2000-01-01 00:00 PST' - timestamptz '2024-02-29 12:34:56+02'; --refused
select true::name, (1 > 2)::name, true::text, true::varchar(2), true::char(6);
select 'NaN'::float8 / '-0'::float8, 1::float8 / 'inf'::float8;
select 1::float8 / '-0'::float8;
select date_trunc('century', date '2024-01-01'), date_trunc('millennium', timestamp '0001-01-01'), date_trunc('century', timestamp '0005-01-01 BC');
select date_trunc('day', '2024-01-01');
select case '1' when 1 then 2 end;
select case '1' when '1' then 2 end, case 1 when '1' then 2 end;
select date '2024-01-01' - '1';
select date '2024-01-01' + 1::int8;
select sqrt(4); --refused
select substring('abc', 'b'); --refused
select nofunc(4);
select abs('x'::text);
select current_user is null, current_schema, current_database() is null;
create table w (id int primary key, v varchar(10), c char(5), f float8, n int);
insert into w values (1, 'short', 'ab', 1.5, 7), (2, null, null, null, null);
select coalesce(v, 'a text that is longer') from w order by id;
select case when v is null then 'a text that is longer' else v end from w order by id;
select greatest(v, 'a text that is longer'), least(v, 'a text that is longer') from w order by id;
select coalesce(v, c::varchar) from w order by id;
select coalesce(c, 'none') from w order by id; --refused
select c like 'ab', c like 'ab   ', c like 'ab%', c not like 'ab', c = 'ab', c = v, c || '|' from w order by id;
select concat(c, '|', v, '|', f, '|', n > 5) from w order by id;
select nullif(n, 2.5) / 2, nullif(n, 7), nullif(v, 'short'), nullif(c, 'ab') from w order by id;
select id from w where f < 1e300 and f > -1e300;
update w set f = 1e300 where id = 2;
select f from w where id = 2;
select f * 12345678901234567890123456789012345 from w where id = 1;
select n * 12345678901234567890123456789012345 from w where id = 1; --refused
select v is unknown from w;
select id from w where n in (7, '8', 9.5) order by id;
select id from w where c in ('ab  ', 'x') order by id;
select v::name, c::name from w order by id;
prepare p1 as select $1 between 'x' and 5;
prepare p2 as select case when $1 = 1 then $1 else 'x' end;
prepare p3 as select $1 = 1, $1 = 'x'::text;
prepare p4 as select coalesce($1, 1), $1 = 2::int8;
execute p4 (3);
select - 9223372036854775808, -(9223372036854775808), - 2147483648, -(2147483648), 2147483648;
select substr('abc', 2), substring('abc', 2), true, true::text;
select 'abc' like 'x\', 'abc' like 'abc\', '' like '\', 'b' ilike 'A\', 'abc' not like 'b%\';
select 'abcd' like 'abc\';
select 'a' like '%\';
select 'a' like '%_\', 'b' like 'b%\';
select 'aBc' ilike 'Ab\';
select 'b' like 'b%\', '' like '%\', 'a' like '%__\';
select trim(leading 'xxaxx', 'x'), trim(trailing 'xxaxx', 'x'), trim(both 'xxaxx', 'x'), trim('xxaxx', 'x');
select trim(leading from ' a '), trim(trailing from ' a '), trim(both from ' a '), trim(from ' a '), trim(from 'xax', 'x');
select trim(leading lower('XXA'), substring('yx' from 2)), trim(leading trim(trailing 'xax', 'x'), 'x');
create table trimmed (v text check (trim(leading v, 'x') = v));
insert into trimmed values ('ax');
insert into trimmed values ('xa');
select char 'abc'; --refused
select character 'abc' = 'abc'; --refused
select char(2) 'abc', cast('abc' as char), 'abc'::char;
select date_trunc('day', timestamptz '2020-01-01 12:00+00', 'UTC'); --refused
select current_timestamp(3) is null; --refused
select localtimestamp(0) is null; --refused
select current_time is null; --refused
select localtime(0) is null; --refused
select 1 between symmetric 2 and 1; --refused
select 1 between asymmetric 2 and 1; --refused
select name 'x'; --refused
